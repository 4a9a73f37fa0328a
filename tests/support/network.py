"""Network interfaces and RDMA ports as files, and as the kernel's ethtool answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support import Link

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support import Directory, Gap

Files = dict[str, "str | bytes | Link | Directory | Gap"]

COUNTERS = {
    "rx_packets": 5_000_000,
    "rx_errors": 0,
    "rx_dropped": 12,
    "rx_missed_errors": 0,
    "rx_fifo_errors": 0,
    "rx_over_errors": 0,
    "rx_crc_errors": 0,
    "rx_frame_errors": 0,
    "rx_length_errors": 0,
    "tx_packets": 4_000_000,
    "tx_errors": 0,
    "tx_dropped": 0,
    "tx_carrier_errors": 0,
}
# What the library answers of a NIC that is set for latency, whose driver can do all that is asked about.
SETTINGS: dict[str, Any] = {
    "rings": {"rx_max": 4096, "rx": 512, "tx_max": 4096, "tx": 512},
    "channels": {"combined_max": 16, "combined": 2, "other_max": 1, "other": 1},
    "coalescing": {"rx_usecs": 0, "tx_usecs": 8, "use_adaptive_rx": 0, "use_adaptive_tx": 0},
    "link": {
        "autoneg": False,
        "supported": ["FIBRE", "10000baseSR/Full", "25000baseSR/Full"],
        "advertised": ["FIBRE", "25000baseSR/Full"],
    },
    "features": {"rx-gro": True, "rx-lro": False, "rx-checksum": True},
    "changeable": ["rx-gro", "rx-lro", "rx-checksum"],
    "pause": {"autoneg": False, "rx": False, "tx": False, "rx_frames": 0, "tx_frames": 0},
    "xdp": ["basic", "redirect", "ndo-xmit", "xsk-zerocopy"],
    "refused": {},
}
DRIVER = {"driver": "ice", "version": "6.1.0", "firmware": "4.40 0x8001c7d4 1.3534.0", "bus": "0000:01:00.0"}


def nic(
    name: str = "eth0",
    address: str = "0000:01:00.0",
    *,
    driver: str = "ice",
    counters: Mapping[str, int] | None = None,
    without: tuple[str, ...] = (),
    rps: tuple[str, ...] = ("0", "0"),
    master: str = "",
    parent: str = "",
    **files: str | Gap,
) -> Files:
    """The files of an Ethernet interface with a link of 25 Gb/s; ``files`` replace those of the
    interface's folder by name, ``parent`` is what lies between PCI function and interface."""
    device = f"/sys/devices/pci0000:00/0000:00:01.0/{address}"
    place = f"{device}/{parent}/net/{name}" if parent else f"{device}/net/{name}"
    found: Files = {
        f"/sys/class/net/{name}": Link("../../" + place.removeprefix("/sys/")),
        f"/sys/bus/pci/devices/{address}": Link("../../../" + device.removeprefix("/sys/")),
        f"{device}/numa_node": "0\n",
        f"{device}/{parent}/driver" if parent else f"{device}/driver": Link(
            "../" * (5 if parent else 4) + f"bus/pci/drivers/{driver}"
        ),
        f"/sys/bus/pci/drivers/{driver}/new_id": "",
        f"{place}/device": Link("../.."),
    }
    values: dict[str, Any] = {
        "flags": "0x1003\n",
        "operstate": "up\n",
        "carrier": "1\n",
        "carrier_changes": "2\n",
        "carrier_up_count": "1\n",
        "speed": "25000\n",
        "duplex": "full\n",
        "mtu": "1500\n",
        "type": "1\n",
        "threaded": "0\n",
        "napi_defer_hard_irqs": "0\n",
        "gro_flush_timeout": "0\n",
    }
    values.update({f"statistics/{n}": f"{v}\n" for n, v in {**COUNTERS, **(counters or {})}.items()})
    values.update({f"queues/rx-{n}/rps_cpus": f"{mask}\n" for n, mask in enumerate(rps)})
    values.update(files)
    found.update({f"{place}/{n}": text for n, text in values.items() if n not in without})
    if master:
        found[f"{place}/master"] = Link("../" * 6 + f"virtual/net/{master}")
        found[f"/sys/devices/virtual/net/{master}/operstate"] = "up\n"
    return found


DARK = {"operstate": "down\n", "carrier": "0\n", "speed": "-1\n"}


def ethtool(name: str = "eth0", driver: Mapping[str, Any] | None = None, **groups: Any) -> dict[Any, Any]:
    """``libraries=`` of a host: what ethtool says of an interface. A group of None is one that the
    driver does not offer."""
    said = {**SETTINGS, **groups}
    refused = dict(said["refused"])
    for group, values in groups.items():
        if values is None:
            del said[group]
            refused[group] = "EOPNOTSUPP"
    said["refused"] = refused
    return {
        ("ethtool", "settings", name): said,
        ("ethtool", "driver", name): {**DRIVER, **(driver or {})},
        ("ethtool", "statistics", name): {},
    }


def ib_port(
    device: str = "mlx5_0",
    address: str = "0000:41:00.0",
    port: int = 1,
    *,
    board: str = "MT_0000000838",
    firmware: str = "28.41.1000",
    counters: Mapping[str, int | str] | None = None,
    interface: str = "",
    **files: str | Gap,
) -> Files:
    """The files of an active InfiniBand port of 400 Gb/s."""
    card = f"/sys/devices/pci0000:40/0000:40:01.0/{address}"
    folder = f"{card}/infiniband/{device}"
    values: dict[str, Any] = {
        "state": "4: ACTIVE\n",
        "phys_state": "5: LinkUp\n",
        "rate": "400 Gb/sec (4X NDR)\n",
        "link_layer": "InfiniBand\n",
        "lid": "0x1b\n",
    }
    numbers: dict[str, int | str] = {
        "symbol_error": 0,
        "link_error_recovery": 0,
        "link_downed": 0,
        "port_rcv_errors": 0,
        "local_link_integrity_errors": 0,
        "excessive_buffer_overrun_errors": 0,
        "port_rcv_packets": 1_000_000_000,
    }
    values.update({f"counters/{n}": f"{v}\n" for n, v in {**numbers, **(counters or {})}.items()})
    values.update(files)
    found: Files = {
        f"/sys/class/infiniband/{device}": Link("../../" + folder.removeprefix("/sys/")),
        f"/sys/bus/pci/devices/{address}": Link("../../../" + card.removeprefix("/sys/")),
        f"{card}/numa_node": "1\n",
        f"{folder}/fw_ver": f"{firmware}\n",
        f"{folder}/board_id": f"{board}\n",
    }
    found.update({f"{folder}/ports/{port}/{n}": text for n, text in values.items()})
    if interface:
        found[f"{card}/net/{interface}/dev_port"] = f"{port - 1}\n"
    return found
