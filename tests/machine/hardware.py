"""What the machine is made of, as QEMU is told it. The tests' expected values are worked out from here.

sockets 2 x cores 2 x threads 2     CPUs 0-3 on node 0, 4-7 on node 1, siblings (0,1) (2,3) (4,5) (6,7)
pcie.0 (no node)                    the root disk, the serial ports: virtio
root 0000:20 (node 0)               port 0 (16 GT/s x4) - drive HWT0
                                    port 1 (8 GT/s x8) - switch - two ports: drive HWT2, NIC
root 0000:40 (node 1)               port 2 (16 GT/s x4) - drive HWT1
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MEBIBYTE = 1 << 20
NODE_MEMORY = 1024 * MEBIBYTE
DRIVE_SIZE = 1024 * MEBIBYTE
DRIVES = ("HWT0", "HWT1", "HWT2")
DISTANCE = 21
IO_QUEUES = 8
# Less what can't be emulated, which QEMU would leave out with a warning for each CPU, and less what has the
# kernel write pages byte by byte (ERMS), which is eight times as slow here.
_CPU = "Haswell-v4,-x2apic,-tsc-deadline,-invpcid,-spec-ctrl,-pcid,-erms"
MAC = "52:54:00:68:77:74"
OUTER_MAC = "52:54:00:68:77:75"


class Disk(NamedTuple):
    path: Path
    format: str


class Kernel(NamedTuple):
    """A kernel that QEMU starts itself, past the boot loader."""

    image: Path
    initrd: Path
    arguments: str


def command(
    folder: Path,
    disk: Disk,
    fds: Sequence[int],
    *,
    share: Path | None,
    kernel: Kernel | None,
    ssh_port: int = 0,
) -> list[str]:
    """QEMU's argument list. ``fds``: connected sockets for the agent and for the monitor. ``ssh_port``: of
    the host, which leads to port 22 of the guest over one more NIC; 0 for none."""
    agent, monitor = fds
    line = [
        "qemu-system-x86_64",
        "-name",
        "hwtune-test",
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-no-reboot",
    ]
    line += ["-machine", "q35", *_processor()]
    line += [
        "-chardev",
        f"file,id=console,path={folder / 'console.log'},append=on",
        "-serial",
        "chardev:console",
    ]
    line += ["-chardev", f"socket,id=monitor,fd={monitor}", "-mon", "chardev=monitor,mode=control"]
    line += ["-device", "virtio-serial-pci,id=ports,bus=pcie.0", "-chardev", f"socket,id=agent,fd={agent}"]
    line += ["-device", "virtserialport,bus=ports.0,chardev=agent,name=hwtune.agent"]
    line += ["-device", "virtio-rng-pci,bus=pcie.0"]
    line += ["-drive", f"if=none,id=root,file={disk.path},format={disk.format},discard=unmap"]
    line += ["-device", f"virtio-blk-pci,drive=root,bus=pcie.0{',bootindex=0' if kernel is None else ''}"]
    line += _memory() + _roots(folder)
    # Each command that a drive is given through its admin queue.
    line += ["-trace", "enable=pci_nvme_admin_cmd", "-D", os.fspath(folder / "trace.log")]
    if share is not None:
        line += ["-fsdev", f"local,id=share,path={share},security_model=none,readonly=on"]
        line += ["-device", "virtio-9p-pci,fsdev=share,mount_tag=share,bus=pcie.0"]
    if ssh_port:
        line += ["-netdev", f"user,id=outer,restrict=on,hostfwd=tcp:127.0.0.1:{ssh_port}-:22"]
        line += ["-device", f"virtio-net-pci,netdev=outer,bus=pcie.0,mac={OUTER_MAC}"]
    if kernel is not None:
        line += ["-kernel", os.fspath(kernel.image), "-initrd", os.fspath(kernel.initrd)]
        line += ["-append", kernel.arguments]
    return line


def make_drives(folder: Path) -> None:
    """The NVMe drives' files: empty, and with nothing on the disk until something is written."""
    for serial in DRIVES:
        path = folder / f"{serial}.raw"
        if not path.exists():
            with path.open("wb") as file:
                file.truncate(DRIVE_SIZE)


def _processor() -> list[str]:
    # Intel's models have real SMT siblings when emulated; AMD's don't.
    if os.environ.get("HWTUNE_MACHINE_KVM") == "1":
        return ["-accel", "kvm", "-cpu", "host", "-smp", "8,sockets=2,cores=2,threads=2"]
    return ["-accel", "tcg,thread=multi", "-cpu", _CPU, "-smp", "8,sockets=2,cores=2,threads=2"]


def _memory() -> list[str]:
    line = ["-m", str(2 * NODE_MEMORY // MEBIBYTE)]
    for node, cpus in enumerate(("0-3", "4-7")):
        line += ["-object", f"memory-backend-ram,id=memory{node},size={NODE_MEMORY // MEBIBYTE}M"]
        line += ["-numa", f"node,nodeid={node},cpus={cpus},memdev=memory{node}"]
    return [*line, "-numa", f"dist,src=0,dst=1,val={DISTANCE}"]


def _roots(folder: Path) -> list[str]:
    line = []
    for node, bus in ((0, 0x20), (1, 0x40)):
        line += ["-device", f"pxb-pcie,id=root{node},bus_nr={bus},numa_node={node},bus=pcie.0"]
    for port, root, speed, width in ((0, 0, 16, 4), (1, 0, 8, 8), (2, 1, 16, 4)):
        line += ["-device"]
        line += [f"pcie-root-port,id=port{port},bus=root{root},chassis={port + 1},slot={port + 1}"]
        line[-1] += f",addr={port % 2},x-speed={speed},x-width={width}"
    line += ["-device", "x3130-upstream,id=switch,bus=port1"]
    for port in (0, 1):
        line += [
            "-device",
            f"xio3130-downstream,id=leaf{port},bus=switch,addr={port},chassis={port + 10},slot={port + 10}",
        ]
    for serial, bus in zip(DRIVES, ("port0", "port2", "leaf0"), strict=True):
        line += ["-drive", f"if=none,id={serial},file={folder / serial}.raw,format=raw,discard=unmap"]
        line += [
            "-device",
            f"nvme,id=nvme-{serial},drive={serial},serial={serial},bus={bus},max_ioqpairs={IO_QUEUES}",
        ]
    line += ["-netdev", "hubport,id=wire,hubid=0"]
    return [*line, "-device", f"e1000e,netdev=wire,mac={MAC},bus=leaf1"]
