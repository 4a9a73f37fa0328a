"""Network interfaces and InfiniBand ports."""

from __future__ import annotations

import msgspec

from hwtune.fact import Fact, not_probed


class Nic(msgspec.Struct):
    """One network interface with a device behind it. Speed in Mb/s."""

    name: str
    source: str = ""
    pci_address: Fact[str] = not_probed()
    driver: Fact[str] = not_probed()
    firmware: Fact[str] = not_probed()
    numa_node: Fact[int] = not_probed()
    operstate: Fact[str] = not_probed()
    admin_up: Fact[bool] = not_probed()
    carrier: Fact[bool] = not_probed()
    carrier_changes: Fact[int] = not_probed()
    speed_mbps: Fact[int] = not_probed()
    max_speed_mbps: Fact[int] = not_probed()
    duplex: Fact[str] = not_probed()
    mtu: Fact[int] = not_probed()
    coalescing: Fact[dict[str, int]] = not_probed()  # ethtool's names: rx_usecs, use_adaptive_rx ...
    rings: Fact[dict[str, int]] = not_probed()  # rx, rx_max, tx, tx_max
    channels: Fact[dict[str, int]] = not_probed()  # rx, tx, combined, other and *_max
    features: Fact[dict[str, bool]] = not_probed()
    pause: Fact[dict[str, bool]] = not_probed()
    statistics: Fact[dict[str, int]] = not_probed()  # /sys/class/net/X/statistics
    driver_statistics: Fact[dict[str, int]] = not_probed()  # ethtool -S
    rps_cpus: dict[str, list[int]] = {}  # rx queue -> CPUs
    xps_cpus: dict[str, list[int]] = {}
    threaded: Fact[int] = not_probed()
    napi_defer_hard_irqs: Fact[int] = not_probed()
    gro_flush_timeout_ns: Fact[int] = not_probed()
    xdp_features: Fact[list[str]] = not_probed()
    queues: Fact[int] = not_probed()
    virtual: bool = False
    bond_member: bool = False


class IbPort(msgspec.Struct):
    """One InfiniBand or RoCE port; rate in Gb/s."""

    device: str
    port: int
    source: str = ""
    link_layer: Fact[str] = not_probed()
    state: Fact[str] = not_probed()  # ACTIVE, INIT, DOWN, ARMED
    physical_state: Fact[str] = not_probed()  # LinkUp, Polling, Disabled ...
    rate_gbps: Fact[float] = not_probed()
    rate_text: Fact[str] = not_probed()
    pci_address: Fact[str] = not_probed()
    numa_node: Fact[int] = not_probed()
    firmware: Fact[str] = not_probed()
    board_id: Fact[str] = not_probed()
    netdevs: list[str] = []
    counters: Fact[dict[str, int]] = not_probed()


class Network(msgspec.Struct):
    nics: list[Nic] = []
    listed: Fact[bool] = not_probed()
    ib_ports: list[IbPort] = []
    ib_listed: Fact[bool] = not_probed()
    softnet: Fact[list[tuple[int, int, int, int]]] = not_probed()  # CPU, processed, dropped, time_squeeze
    softnet_source: str = ""
