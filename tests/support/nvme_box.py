"""A fake machine with one NVMe drive: its files, and a controller that answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support import Link, fake_nvme, host
from tests.support.fake_nvme import FakeController

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hwtune.host.base import Host

# Power states: maximum power, flags (2: non-operational), microseconds to enter and to leave.
SLEEPY = ((900, 0, 0, 0), (450, 0, 0, 0), (40, 2, 5000, 4000), (4, 2, 10000, 45000))


def files(name: str = "nvme0", address: str = "0000:01:00.0", **changes: Any) -> dict[str, Any]:
    """One drive with one disk, as a live kernel shows it. ``changes``: a file's name -> what it holds
    instead, None where there is no such file."""
    pci = f"/sys/devices/pci0000:00/0000:00:01.0/{address}"
    folder = f"{pci}/nvme/{name}"
    disk = f"{name}n1"
    found: dict[str, Any] = {
        f"/sys/class/nvme/{name}": Link(f"../../devices/pci0000:00/0000:00:01.0/{address}/nvme/{name}"),
        f"/sys/block/{disk}": Link(f"../devices/pci0000:00/0000:00:01.0/{address}/nvme/{name}/{disk}"),
        f"{folder}/transport": "pcie\n",
        f"{folder}/state": "live\n",
        f"{folder}/model": "ACME Fast 960                           \n",
        f"{folder}/serial": f"SN-{name}             \n",
        f"{folder}/firmware_rev": "FW1     \n",
        f"{folder}/numa_node": "0\n",
        f"{folder}/queue_count": "9\n",
        f"{folder}/power/pm_qos_latency_tolerance_us": "100000\n",
        f"{folder}/{disk}/size": "2048\n",
        f"{folder}/{disk}/queue/rotational": "0\n",
        f"{folder}/{disk}/queue/scheduler": "[none] mq-deadline kyber bfq\n",
        f"{folder}/{disk}/queue/write_cache": "write back\n",
        f"{folder}/{disk}/queue/discard_max_bytes": "2199023255040\n",
        "/sys/devices/system/cpu/online": "0-7\n",
        "/proc/self/mountinfo": "22 1 0:21 / /proc rw - proc proc rw\n",
    }
    for key, value in changes.items():
        path = next(p for p in found if p.rpartition("/")[2] == key and (name in p or "nvme" not in p))
        if value is None:
            del found[path]
        else:
            found[path] = value
    return found


def controller(
    features: dict[int, tuple[int, bytes]] | None = None,
    fails: dict[tuple[int, int], int | OSError] | None = None,
    smart: bytes | None = None,
    **identify: Any,
) -> FakeController:
    """A healthy drive that sleeps; ``identify`` as ``fake_nvme.identify`` takes it."""
    return FakeController(
        fake_nvme.identify(**{"states": SLEEPY, **identify}),
        smart or fake_nvme.smart(),
        features={
            0x0C: (1, fake_nvme.apst((0, 2, 100), (1, 2, 100), (2, 3, 2000))),
            0x06: (1, b""),
            0x10: (0, b""),
            **(features or {}),
        },
        fails=fails,
    )


def box(tmp_path: Path, tree: Mapping[str, Any], drive: Any = None, **more: Any) -> Host:
    """The machine, opened. ``drive``: the controller behind nvme0, or what the library said of it."""
    libraries: dict[tuple[Any, ...], Any] = dict(more.pop("libraries", {}))
    if drive is not None:
        libraries["nvme_admin", "nvme0"] = (
            fake_nvme.said(drive) if isinstance(drive, FakeController) else drive
        )
    return host(tmp_path, tree, complete=True, libraries=libraries, **more)
