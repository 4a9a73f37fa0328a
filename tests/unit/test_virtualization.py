"""Virtual machine or not, container or not: known only where something tells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hwtune.probes import virtualization
from tests.support import Gap, Link, host

if TYPE_CHECKING:
    from pathlib import Path

    from hwtune.model.kernel import Virtualization

GUEST = "processor\t: 0\nflags\t\t: fpu vme hypervisor lahf_lm\n"
METAL = "processor\t: 0\nflags\t\t: fpu vme lahf_lm\n"
DMI = "/sys/class/dmi/id/"
MDS = "/sys/devices/system/cpu/vulnerabilities/mds"
CLOCKS = "/sys/devices/system/clocksource/clocksource0/available_clocksource"


def read(tmp_path: Path, files: dict[str, Any], **more: Any) -> Virtualization:
    return virtualization.read(host(tmp_path, files, **more))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"/proc/cpuinfo": METAL}, "none"),
        ({"/proc/cpuinfo": GUEST}, "other"),
        ({"/proc/cpuinfo": GUEST, CLOCKS: "kvm-clock tsc\n"}, "kvm"),
        ({"/proc/cpuinfo": GUEST, CLOCKS: "hyperv_clocksource_tsc_page\n"}, "microsoft"),
        ({"/proc/cpuinfo": GUEST, DMI + "sys_vendor": "QEMU", DMI + "product_name": "Standard PC"}, "qemu"),
        ({"/proc/cpuinfo": GUEST, DMI + "sys_vendor": "VMware, Inc."}, "vmware"),
        (
            {DMI + "sys_vendor": "Microsoft Corporation", DMI + "product_name": "Virtual Machine"},
            "microsoft",
        ),
        # a Surface is made by the same vendor and is none
        ({DMI + "sys_vendor": "Microsoft Corporation", DMI + "product_name": "Surface Pro"}, "none"),
        ({DMI + "sys_vendor": "Amazon EC2", DMI + "product_name": "c6in.8xlarge"}, "amazon"),
        ({DMI + "sys_vendor": "Amazon EC2", DMI + "product_name": "c6in.metal"}, "none"),
        # a hidden hypervisor flag does not hide the firmware
        ({"/proc/cpuinfo": METAL, DMI + "sys_vendor": "QEMU"}, "qemu"),
        # Oracle builds servers as well as VirtualBox
        ({"/proc/cpuinfo": METAL, DMI + "sys_vendor": "Oracle Corporation"}, "none"),
        ({DMI + "sys_vendor": "innotek GmbH", DMI + "product_name": "VirtualBox"}, "virtualbox"),
        # VirtualBox before 5 sets no flag
        (
            {"/proc/cpuinfo": METAL, "/proc/bus/pci/devices": "0008\t80867000\t0\n0010\t80eebeef\t12\n"},
            "virtualbox",
        ),
        ({"/sys/hypervisor/type": "xen\n", "/proc/cpuinfo": GUEST}, "xen"),
        ({"/sys/hypervisor/type": "xen\n", "/proc/xen/capabilities": "control_d\n"}, "xen-dom0"),
        ({"/proc/device-tree/hypervisor/compatible": "linux,kvm\0"}, "kvm"),
        (
            {"/proc/device-tree/ibm,partition-name": "lpar1\0", "/proc/cpuinfo": "machine\t: CHRP IBM"},
            "powervm",
        ),
        ({"/proc/cpuinfo": "processor: 0\nplatform\t: PowerNV\n"}, "none"),
        ({"/proc/sysinfo": "LPAR Number: 1\nVM00 Control Program: KVM/Linux\n"}, "kvm"),
        ({"/proc/sysinfo": "LPAR Number: 1\nVM00 Control Program: z/VM    6.1.0\n"}, "z/vm"),
        ({"/proc/sysinfo": "LPAR Number:  36\n"}, "pr/sm"),
        # where neither flags nor firmware were captured
        ({MDS: "Vulnerable: Clear CPU buffers attempted, no microcode; SMT Host state unknown\n"}, "other"),
        ({MDS: "Mitigation: Clear CPU buffers; SMT vulnerable\n"}, None),
        # Arm has no flag: the firmware's word counts, and without it nothing does
        ({"/proc/cpuinfo": "processor: 0\nFeatures\t: fp asimd\n"}, None),
        (
            {
                "/proc/cpuinfo": "processor: 0\nFeatures\t: fp\n",
                DMI + "sys_vendor": "Huawei",
                DMI + "product_name": "XA320 V2",
            },
            "none",
        ),
        ({"/proc/cpuinfo": ""}, None),
        ({"/proc/meminfo": ""}, None),
    ],
)
def test_hypervisor(tmp_path: Path, files: dict[str, str], expected: str | None) -> None:
    found = read(tmp_path, files)
    assert found.hypervisor.value == expected
    assert found.is_guest is (None if expected is None else expected != "none")


def test_a_bus_that_cannot_be_read_hides_old_hypervisors(tmp_path: Path) -> None:
    files = {"/proc/cpuinfo": METAL, "/proc/bus/pci/devices": Gap("denied")}
    assert read(tmp_path, files).hypervisor.gap == "denied"


def test_pasted_lscpu(tmp_path: Path) -> None:
    text = "Architecture:        x86_64\nCPU(s):              2\nHypervisor vendor:   KVM\n"
    found = read(tmp_path, {}, documents={"lscpu.txt": text})
    assert found.hypervisor.value == "kvm"
    assert found.hypervisor.source.endswith("lscpu.txt")


INITIAL = {"/proc/self/ns/pid": Link("pid:[4026531836]")}
OTHER = {"/proc/self/ns/pid": Link("pid:[4026532281]")}


@pytest.mark.parametrize(
    ("files", "complete", "expected"),
    [
        (INITIAL, True, "none"),
        (OTHER, True, "other"),
        ({**OTHER, "/.dockerenv": ""}, True, "docker"),
        ({**OTHER, "/run/.containerenv": "engine=podman"}, True, "podman"),
        ({**OTHER, "/run/systemd/container": "systemd-nspawn\n"}, True, "systemd-nspawn"),
        ({**OTHER, "/proc/1/environ": "PATH=/bin\0container=lxc\0"}, True, "lxc"),
        (
            {**OTHER, "/proc/1/cgroup": "0::/kubepods.slice/kubepods-pod1.slice/cri-1.scope\n"},
            True,
            "kubepods",
        ),
        # a VM whose root was made from a container's image: the mark is left over
        ({**INITIAL, "/.dockerenv": "", "/proc/self/ns/mnt": Link("mnt:[4026531832]")}, True, "none"),
        (
            {
                **INITIAL,
                "/.dockerenv": "",
                "/proc/self/ns/mnt": Link("mnt:[4026531841]"),
                "/proc/1/ns/mnt": Link("mnt:[4026531841]"),
            },
            True,
            "none",
        ),
        # a container with the host's process numbers has a root of its own
        (
            {
                **INITIAL,
                "/.dockerenv": "",
                "/proc/self/ns/mnt": Link("mnt:[4026532999]"),
                "/proc/1/ns/mnt": Link("mnt:[4026531841]"),
            },
            True,
            "docker",
        ),
        ({"/proc/1/cgroup": "0::/init.scope\n"}, True, "none"),  # no namespaces to read, and no mark
        ({"/proc/cmdline": ""}, False, None),  # nothing captured that would tell
    ],
)
def test_container(tmp_path: Path, files: dict[str, Any], complete: bool, expected: str | None) -> None:
    found = read(tmp_path, files, complete=complete)
    assert found.container.value == expected
    assert found.is_container is (None if expected is None else expected != "none")


def test_product_from_either_place(tmp_path: Path) -> None:
    found = read(tmp_path, {"/sys/devices/virtual/dmi/id/product_name": "PowerEdge R740xd\n"})
    assert found.product.get() == "PowerEdge R740xd"
    assert found.vendor.unknown
