"""Network interfaces and InfiniBand ports."""

from __future__ import annotations

import msgspec

from hwtune.fact import Fact, not_probed


class Nic(msgspec.Struct):
    """One network interface with a device behind it. Speeds in Mb/s.

    Settings are asked of interfaces that are up only. A setting that its driver does not have is
    ABSENT, or missing in its group.
    """

    name: str  # "?" where a pasted text does not say
    source: str = ""
    pci_address: Fact[str] = not_probed()
    driver: Fact[str] = not_probed()
    firmware: Fact[str] = not_probed()
    numa_node: Fact[int] = not_probed()
    link_layer: Fact[str] = not_probed()  # ethernet, infiniband (IPoIB), or the number of another
    operstate: Fact[str] = not_probed()
    admin_up: Fact[bool] = not_probed()
    carrier: Fact[bool] = not_probed()
    carrier_changes: Fact[int] = not_probed()  # since the driver made the interface
    carrier_up_count: Fact[int] = not_probed()
    speed_mbps: Fact[int] = not_probed()
    max_speed_mbps: Fact[int] = not_probed()  # of the supported link modes
    advertised_speed_mbps: Fact[int] = not_probed()  # the highest that it offers to its partner
    partner_speed_mbps: Fact[int] = not_probed()  # the highest that the link partner offers
    autoneg: Fact[bool] = not_probed()
    duplex: Fact[str] = not_probed()
    mtu: Fact[int] = not_probed()
    # by the names of ethtool's netlink attributes: rx_usecs, rx_max_frames, use_adaptive_rx (0 or 1) ...
    coalescing: Fact[dict[str, int]] = not_probed()
    rings: Fact[dict[str, int]] = not_probed()  # rx, rx_max, tx, tx_max
    channels: Fact[dict[str, int]] = not_probed()  # rx, tx, combined, other and *_max
    features: Fact[dict[str, bool]] = not_probed()  # by the kernel's names: rx-gro, rx-lro ...
    changeable_features: Fact[list[str]] = not_probed()
    pause: Fact[dict[str, bool]] = not_probed()  # autoneg, rx, tx
    pause_frames: Fact[dict[str, int]] = not_probed()  # rx, tx
    statistics: Fact[dict[str, int]] = not_probed()  # by their names in /sys/class/net/IF/statistics
    driver_statistics: Fact[dict[str, int]] = not_probed()  # ethtool -S
    rps_cpus: Fact[dict[str, list[int]]] = not_probed()  # rx queue -> CPUs
    threaded: Fact[int] = not_probed()
    napi_defer_hard_irqs: Fact[int] = not_probed()
    gro_flush_timeout_ns: Fact[int] = not_probed()
    xdp_features: Fact[list[str]] = not_probed()  # netdev.yaml's names: basic, xsk-zerocopy ...
    queues: Fact[int] = not_probed()  # for receiving
    master: Fact[str] = not_probed()  # the bond, team or bridge that it belongs to
    routed: Fact[bool] = not_probed()  # whether an IPv4 route leads out there; asked where there is no link
    virtual: bool = False


class IbPort(msgspec.Struct):
    """One InfiniBand or RoCE port; rates in Gb/s."""

    device: str
    port: int
    source: str = ""
    link_layer: Fact[str] = not_probed()  # InfiniBand, Ethernet
    state: Fact[str] = not_probed()  # DOWN, INIT, ARMED, ACTIVE
    physical_state: Fact[str] = not_probed()  # LinkUp, Polling, Disabled ...
    rate_gbps: Fact[float] = not_probed()
    rate_text: Fact[str] = not_probed()
    lanes: Fact[int] = not_probed()
    lid: Fact[int] = not_probed()  # 0 until a subnet manager has given one
    pci_address: Fact[str] = not_probed()
    slot_gbps: Fact[float] = not_probed()  # of its card's PCIe link, where the same text says it
    numa_node: Fact[int] = not_probed()
    firmware: Fact[str] = not_probed()
    board_id: Fact[str] = not_probed()
    adapter: Fact[str] = not_probed()  # MT4129: the chip, as ibstat says; boards of several rates have it
    netdevs: list[str] = []
    counters: Fact[dict[str, int]] = not_probed()  # of errors, and packets received


class SoftnetCpu(msgspec.Struct):
    """What one CPU did for received packets since boot (/proc/net/softnet_stat). The counters have 32
    bits and wrap."""

    cpu: int
    processed: int
    dropped: int  # as the backlog was full
    squeezed: int  # times that the softirq gave up with work left


class Network(msgspec.Struct):
    nics: list[Nic] = []
    listed: Fact[bool] = not_probed()
    ib_ports: list[IbPort] = []
    ib_listed: Fact[bool] = not_probed()
    softnet: Fact[list[SoftnetCpu]] = not_probed()
    received: Fact[int] = not_probed()  # packets of all interfaces, asked where a CPU dropped some or gave up
