"""PCI classes by the names that lspci prints (pci.ids), and what a name says of a function."""

from __future__ import annotations

# Base class and subclass (PCI Code and ID Assignment Specification 1.x) by lspci's name for it.
CLASSES = {
    "Non-VGA unclassified device": 0x0000,
    "VGA compatible unclassified device": 0x0001,
    "SCSI storage controller": 0x0100,
    "IDE interface": 0x0101,
    "RAID bus controller": 0x0104,
    "SATA controller": 0x0106,
    "Serial Attached SCSI controller": 0x0107,
    "Non-Volatile memory controller": 0x0108,
    "Mass storage controller": 0x0180,
    "Ethernet controller": 0x0200,
    "Token ring network controller": 0x0201,
    "FDDI network controller": 0x0202,
    "Fabric controller": 0x0208,
    "Infiniband controller": 0x0207,
    "Network controller": 0x0280,
    "VGA compatible controller": 0x0300,
    "XGA compatible controller": 0x0301,
    "3D controller": 0x0302,
    "Display controller": 0x0380,
    "Multimedia video controller": 0x0400,
    "Multimedia audio controller": 0x0401,
    "Audio device": 0x0403,
    "Multimedia controller": 0x0480,
    "RAM memory": 0x0500,
    "FLASH memory": 0x0501,
    "CXL": 0x0502,
    "Memory controller": 0x0580,
    "Host bridge": 0x0600,
    "ISA bridge": 0x0601,
    "EISA bridge": 0x0602,
    "PCI bridge": 0x0604,
    "CardBus bridge": 0x0607,
    "Semi-transparent PCI-to-PCI bridge": 0x0609,
    "InfiniBand to PCI host bridge": 0x060A,
    "Bridge": 0x0680,
    "Serial controller": 0x0700,
    "Parallel controller": 0x0701,
    "Communication controller": 0x0780,
    "PIC": 0x0800,
    "DMA controller": 0x0801,
    "Timer": 0x0802,
    "RTC": 0x0803,
    "PCI Hot-plug controller": 0x0804,
    "SD Host controller": 0x0805,
    "IOMMU": 0x0806,
    "System peripheral": 0x0880,
    "Generic system peripheral": 0x0800,
    "Co-processor": 0x0B40,
    "FireWire (IEEE 1394)": 0x0C00,
    "USB controller": 0x0C03,
    "USB Controller": 0x0C03,
    "Fibre Channel": 0x0C04,
    "SMBus": 0x0C05,
    "InfiniBand": 0x0C06,
    "Serial bus controller": 0x0C80,
    "Signal processing controller": 0x1180,
    "Encryption controller": 0x1080,
    "Performance counters": 0x1101,
    "Processing accelerators": 0x1200,
    "Unassigned class": 0xFF00,
}

# Makers whose name alone stands in front of a device, with their id; only those that rows ask about.
VENDORS = {
    "NVIDIA Corporation": 0x10DE,
    "Intel Corporation": 0x8086,
    "Mellanox Technologies": 0x15B3,
    "ASPEED Technology, Inc.": 0x1A03,
    "Matrox Electronics Systems Ltd.": 0x102B,
    "Cirrus Logic": 0x1013,
    "VMware": 0x15AD,
    "Red Hat, Inc.": 0x1B36,
    "Samsung Electronics Co Ltd": 0x144D,
    "Micron Technology Inc": 0x1344,
}


def vendor_of(name: str) -> int | None:
    """The vendor id of a device's name as lspci prints it."""
    for vendor, number in VENDORS.items():
        if name.startswith(vendor):
            return number
    return None
