"""PCI's small texts and registers, against values worked out from the specification's tables."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwtune.text import aer, lspci, pci_sysfs, udev_pci
from hwtune.text.pci_config import decode, dwords
from tests.support.pci import BRIDGE, config


@pytest.mark.parametrize(
    ("text", "speed"),
    [
        ("8 GT/s", 8.0),
        ("8.0 GT/s", 8.0),
        ("8.0 GT/s PCIe", 8.0),
        ("2.5 GT/s PCIe", 2.5),
        ("64.0 GT/s PCIe", 64.0),
    ],
)
def test_every_spelling_of_a_speed(text: str, speed: float) -> None:
    assert pci_sysfs.parse_speed(text) == speed


@pytest.mark.parametrize("text", ["Unknown", "Unknown speed", "", "7 GT/s", "nan GT/s", "8.0"])
def test_no_speed(text: str) -> None:
    with pytest.raises(ValueError):
        pci_sysfs.parse_speed(text)


@pytest.mark.parametrize("text", ["0", "63", "255", "3", "-4", "x4", ""])
def test_no_width(text: str) -> None:
    with pytest.raises(ValueError):
        pci_sysfs.parse_width(text)


def test_addresses() -> None:
    for good in ("0000:01:00.0", "10000:e0:06.0", "ffffffff:ff:1f.7"):
        assert pci_sysfs.is_address(good)
    for bad in (
        "01:00.0",
        "0000:01:00",
        "0000:01:00.8",
        "0000:1:00.0",
        "0000:01:00.0:pcie001",
        "000g:01:00.0",
        "",
    ):
        assert not pci_sysfs.is_address(bad)
    assert pci_sysfs.is_host_bridge("pci10000:e0")
    assert not pci_sysfs.is_host_bridge("pci_bus")
    assert not pci_sysfs.is_host_bridge("pnp0")


def test_place_in_the_tree() -> None:
    base = "/sys/devices/pci0000:00"
    assert pci_sysfs.place(f"{base}/0000:00:01.0") == (None, "pci0000:00")
    assert pci_sysfs.place(f"{base}/0000:00:01.0/0000:01:00.0") == ("0000:00:01.0", "pci0000:00")
    # behind Intel VMD: a root bus of its own, in a domain of its own
    vmd = f"{base}/0000:00:0e.0/pci10000:e0/10000:e0:06.0"
    assert pci_sysfs.place(vmd) == (None, "pci10000:e0")
    assert pci_sysfs.place(f"{vmd}/10000:e1:00.0") == ("10000:e0:06.0", "pci10000:e0")
    assert pci_sysfs.place("/sys/bus/pci/devices/0000:01:00.0") == (None, None)


def test_error_counts_with_blanks_in_names() -> None:
    text = "RxErr 2\nRELAY_NUM Rollover 1\nReplay Timer Timeout 3\nTOTAL_ERR_COR 6"
    counts = pci_sysfs.parse_error_counts(text)
    assert counts == {"RxErr": 2, "RELAY_NUM Rollover": 1, "Replay Timer Timeout": 3, "TOTAL_ERR_COR": 6}
    assert aer.name("Replay Timer Timeout") == "Timeout"
    for bad in ("", "RxErr", "RxErr two"):
        with pytest.raises(ValueError):
            pci_sysfs.parse_error_counts(bad)


def test_bars() -> None:
    # 16 MiB, none, and 128 GiB
    text = (
        "0x0000000092000000 0x0000000092ffffff 0x0000000000040200\n"
        "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
        "0x0000210000000000 0x0000211fffffffff 0x000000000014220c\n"
    )
    assert pci_sysfs.parse_resource(text) == [16 << 20, 0, 128 << 30]


def test_policy_in_brackets() -> None:
    assert pci_sysfs.parse_policy("[default] performance powersave powersupersave") == "default"
    with pytest.raises(ValueError):
        pci_sysfs.parse_policy("default performance")


# -- config space -----------------------------------------------------------------------------


def test_registers_of_an_endpoint() -> None:
    # 8 GT/s x2 of 16 GT/s x4; told to train to 16; L1 on; RxErr and BadTLP in the past
    space = config(payload=128, supported=256, request=512, aspm=2, link=(3, 2, 4, 4), correctable=0x41)
    found = decode(dwords(space))
    assert found.port_type == "endpoint"
    assert (found.current_gts, found.current_width) == (8.0, 2)
    assert (found.max_gts, found.max_width) == (16.0, 4)
    assert found.target_gts == 16.0
    assert (found.max_payload, found.max_payload_supported, found.max_read_request) == (128, 256, 512)
    assert found.aspm == ["L1"]
    assert found.sticky_correctable == ["RxErr", "BadTLP"]
    assert found.sticky_uncorrectable == []
    assert found.acs_enabled is None
    assert found.extended and not found.denied and not found.lost
    assert (found.vendor, found.device, found.class_code) == (0x144D, 0xA808, 0x010802)


def test_registers_of_a_port() -> None:
    # 1Dh: source validation, request and completion redirection, upstream forwarding
    space = config("downstream", class_code=BRIDGE, buses=(0x17, 0x1C), acs=(0x7F, 0x1D))
    found = decode(dwords(space))
    assert found.port_type == "downstream"
    assert found.buses == (0x17, 0x1C)
    assert found.acs_enabled == ["SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"]


def test_without_privilege_only_the_header_is_known() -> None:
    found = decode(dwords(config()[:64]))
    assert found.denied
    assert found.port_type is None
    assert found.class_code == 0x010802


def test_a_function_without_pci_express() -> None:
    space = bytearray(config())
    space[0x06] = 0  # no capabilities at all
    assert decode(dwords(bytes(space))).port_type == "conventional"


def test_a_device_that_does_not_answer() -> None:
    assert decode(dwords(b"\xff" * 256)).lost


def test_chains_that_run_in_circles_end() -> None:
    space = bytearray(config())
    space[0x40] = 0x05  # MSI in place of PCI Express, which points to itself
    space[0x41] = 0x40
    found = decode(dwords(bytes(space)))
    assert found.port_type is None
    extended = bytearray(config())
    struct.pack_into("<I", extended, 0x100, 0x100 << 20 | 0x1_0023)  # a capability that points to itself
    assert decode(dwords(bytes(extended))).sticky_correctable is None


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=4096))
def test_any_bytes_are_some_registers(content: bytes) -> None:
    found = decode(dwords(content))
    assert found.max_gts in (None, 2.5, 5.0, 8.0, 16.0, 32.0, 64.0, 128.0)
    assert found.current_width in (None, 1, 2, 4, 8, 12, 16, 32)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_damage_to_a_config_space_is_survived(data: st.DataObject) -> None:
    space = bytearray(config(acs=(0x7F, 0x1D), correctable=1))
    for _ in range(data.draw(st.integers(1, 20))):
        place = data.draw(st.sampled_from([*range(0x06, 0x80), *range(0x100, 0x160)]))
        space[place] = data.draw(st.integers(0, 255))
    decode(dwords(bytes(space)))


# -- lspci -------------------------------------------------------------------------------------

_VERBOSE = """\
3b:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev a1)
\tControl: I/O+ Mem+ BusMaster+ SpecCycle-
\tNUMA node: 1
\tIOMMU group: 42
\tCapabilities: [40] Power Management version 3
\t\tStatus: D0 NoSoftRst+ PME-Enable-
\tCapabilities: [60] Express (v2) Endpoint, MSI 00
\t\tDevCap:\tMaxPayload 256 bytes, PhantFunc 0
\t\tDevCtl:\tCorrErr+ NonFatalErr+
\t\t\tMaxPayload 256 bytes, MaxReadReq 4096 bytes
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM L1, Exit Latency L1 <4us
\t\tLnkCtl:\tASPM L1 Enabled; RCB 64 bytes, Disabled- CommClk-
\t\tLnkSta:\tSpeed 16GT/s (downgraded), Width x8 (downgraded)
\t\t\tTrErr- Train- SlotClk+
\t\tLnkCtl2: Target Link Speed: 32GT/s, EnterCompliance- SpeedDis-
\tCapabilities: [1b8 v2] Advanced Error Reporting
\t\tUESta:\tDLP- SDES- TLP- FCP- CmpltTO+ CmpltAbrt- UnxCmplt-
\t\t\tRxOF- MalfTLP+
\t\tCESta:\tRxErr+ BadTLP- BadDLLP- Rollover- Timeout- AdvNonFatalErr+
\tKernel driver in use: nvidia
"""


def test_verbose_listing() -> None:
    (found,) = lspci.parse(_VERBOSE).functions
    assert found.address == "0000:3b:00.0"
    assert (found.vendor, found.device, found.class_code) == (0x10DE, 0x2330, 0x030200)
    assert found.name == "NVIDIA Corporation GH100 [H100 SXM5 80GB]"
    assert (found.numa_node, found.iommu_group, found.driver, found.power_state) == (1, 42, "nvidia", "D0")
    registers = found.registers
    assert registers.port_type == "endpoint"
    assert (registers.current_gts, registers.current_width) == (16.0, 8)
    assert (registers.max_gts, registers.max_width, registers.target_gts) == (32.0, 16, 32.0)
    assert (registers.max_payload, registers.max_payload_supported, registers.max_read_request) == (
        256,
        256,
        4096,
    )
    assert registers.aspm == ["L1"]
    assert registers.sticky_uncorrectable == ["CmpltTO", "MalfTLP"]
    assert registers.sticky_correctable == ["RxErr", "NonFatalErr"]


def test_capabilities_that_need_privilege() -> None:
    (found,) = lspci.parse(
        "01:00.0 Ethernet controller: Example NIC (rev 01)\n\tFlags: bus master\n"
        "\tCapabilities: <access denied>\n"
    ).functions
    assert found.registers.denied
    assert found.verbose and found.driver is None


def test_a_device_that_fell_off() -> None:
    (found,) = lspci.parse(
        "b3:00.0 3D controller: NVIDIA Corporation GA100 (rev ff) (prog-if ff)\n"
    ).functions
    assert found.registers.lost


def test_virtual_functions_by_their_routing_ids() -> None:
    text = (
        "0000:1b:00.0 Ethernet controller: Example NIC\n"
        "\t\tInitial VFs: 8, Total VFs: 8, Number of VFs: 3, Function Dependency Link: 00\n"
        "\t\tVF offset: 2, stride: 1, Device ID: 101e\n"
    )
    (found,) = lspci.parse(text).functions
    assert found.virtual_functions == ["0000:1b:00.2", "0000:1b:00.3", "0000:1b:00.4"]


def test_dump_of_the_registers() -> None:
    space = config(link=(3, 2, 4, 4))
    dump = "\n".join(f"{at:02x}: {space[at : at + 16].hex(' ')}" for at in range(0, len(space), 16))
    (found,) = lspci.parse(f"01:00.0 Class 0108: Device 144d:a808\n{dump}\n").functions
    assert (found.registers.current_gts, found.registers.max_width) == (8.0, 4)
    assert (found.vendor, found.device) == (0x144D, 0xA808)


def test_records() -> None:
    named = (
        "Slot:\t00:03.0\nClass:\tEthernet controller\nVendor:\tIntel Corporation\n"
        "Device:\t82599\nDriver:\tixgbe\n"
    )
    (found,) = lspci.parse_records(named)
    assert (found.address, found.class_code, found.vendor) == ("0000:00:03.0", 0x020000, 0x8086)
    assert (found.name, found.driver) == ("Intel Corporation 82599", "ixgbe")
    quoted = '01:00.0 "3D controller [0302]" "NVIDIA Corporation [10de]" "GH100 [2330]" -ra1 "NVIDIA" "x"\n'
    (found,) = lspci.parse_records(quoted)
    assert (found.class_code, found.vendor, found.device) == (0x030200, 0x10DE, 0x2330)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=400), st.integers(0, 30))
def test_any_text_is_some_listing(text: str, place: int) -> None:
    lines = _VERBOSE.splitlines()
    lines[place % len(lines)] = text
    lspci.parse("\n".join(lines))
    lspci.parse(text)
    lspci.parse_records(text)
    list(udev_pci.records(text))


def test_udev_records() -> None:
    text = (
        "P: /devices/pci0000:00/0000:00:01.0\nE: SUBSYSTEM=pci\nE: PCI_CLASS=60400\n\n"
        "P: /devices/virtual/tty/tty1\nE: SUBSYSTEM=tty\n\n"
        "P: /devices/pci0000:00/0000:00:01.0/0000:01:00.0\nE: SUBSYSTEM=pci\n"
        "E: ID_VENDOR_FROM_DATABASE=Example\nE: ID_MODEL_FROM_DATABASE=Card\n"
    )
    found = dict(udev_pci.records(text))
    assert list(found) == [
        "/devices/pci0000:00/0000:00:01.0",
        "/devices/pci0000:00/0000:00:01.0/0000:01:00.0",
    ]
    assert udev_pci.name(found["/devices/pci0000:00/0000:00:01.0/0000:01:00.0"]) == "Example Card"
    assert udev_pci.parse_database("I:1\nE:ID_MODEL_FROM_DATABASE=Card\nG:x\n") == {
        "ID_MODEL_FROM_DATABASE": "Card"
    }
