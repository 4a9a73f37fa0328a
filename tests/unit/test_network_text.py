"""What programs print of network ports."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwtune.text import ethtool, ibstat, ip_link, nccl_topology, net_dev, softnet

SETTINGS = """\
Settings for ens1f0:
\tSupported ports: [ TP ]
\tSupported link modes:   100baseT/Full
\t                        1000baseT/Full 10000baseT/Full
\tSupported pause frame use: Symmetric
\tAdvertised link modes:  100baseT/Full
\t                        1000baseT/Full
\tLink partner advertised link modes:  100baseT/Half 100baseT/Full
\tLink partner advertised auto-negotiation: Yes
\tSpeed: 100Mb/s
\tDuplex: Full
\tAuto-negotiation: on
\tPort: Twisted Pair
\tLink detected: yes
"""


def test_settings() -> None:
    said = ethtool.settings(SETTINGS)
    assert (said.speed_mbps, said.duplex, said.autoneg, said.link) == (100, "full", True, True)
    assert said.supported == ("100baseT/Full", "1000baseT/Full", "10000baseT/Full")
    assert ethtool.max_speed(said.supported) == 10_000
    assert ethtool.max_speed(said.advertised) == 1000
    assert ethtool.max_speed(said.partner) == 100
    assert ethtool.interface(SETTINGS) == "ens1f0"


def test_settings_without_a_link() -> None:
    said = ethtool.settings(
        "Settings for eth1:\n\tSpeed: Unknown!\n\tDuplex: Unknown! (255)\n\tLink detected: no (No cable)\n"
    )
    assert said == ethtool.Settings(link=False)


def test_modes_that_are_no_speeds() -> None:
    assert ethtool.max_speed(["TP", "Autoneg", "Pause", "RS", "10000baseR_FEC"]) == 10_000
    assert ethtool.max_speed(["FIBRE", "BaseR"]) is None
    # between two devices of one maker only
    assert ethtool.max_speed(["40000baseSR4/Full", "56000baseSR4/Full"]) == 40_000
    assert ethtool.max_speed(["100000baseLR4_ER4/Full", "400000baseKR4/Full"]) == 400_000


RINGS = """\
Ring parameters for p4p1:
Pre-set maximums:
RX:\t\t8192
RX Mini:\tn/a
RX Jumbo:\tn/a
TX:\t\t8192
Current hardware settings:
RX:\t\t1024
RX Mini:\tn/a
RX Jumbo:\tn/a
TX:\t\t512
RX Buf Len:\tn/a
TX Push:\toff
"""


def test_rings() -> None:
    assert ethtool.rings(RINGS) == {"rx_max": 8192, "tx_max": 8192, "rx": 1024, "tx": 512}
    assert ethtool.rings(RINGS.partition("Current")[0]) == {"rx_max": 8192, "tx_max": 8192}
    assert ethtool.rings("Ring parameters for eth0:\nCannot get device ring settings: Not supported\n") == {}


def test_channels() -> None:
    text = (
        "Channel parameters for gve0:\nPre-set maximums:\nRX:\t\t16\nTX:\t\t16\nOther:\t\tn/a\nCombined:\t0\n"
        "Current hardware settings:\nRX:\t\t4\nTX:\t\t3\nOther:\t\tn/a\nCombined:\t0\n"
    )
    assert ethtool.channels(text) == {
        "rx_max": 16, "tx_max": 16, "combined_max": 0, "rx": 4, "tx": 3, "combined": 0,
    }  # fmt: skip


def test_coalescing() -> None:
    text = (
        "Coalesce parameters for eth0:\nAdaptive RX: on  TX: n/a\nstats-block-usecs: n/a\n\nrx-usecs: 8\n"
        "rx-frames: 128\nrx-usecs-irq: n/a\nrx-frames-irq: n/a\n\ntx-usecs: 16\ntx-frames: 32\n"
        "rx-usecs-low: 3\n"
    )
    assert ethtool.coalescing(text) == {
        "use_adaptive_rx": 1, "rx_usecs": 8, "rx_max_frames": 128, "tx_usecs": 16, "tx_max_frames": 32,
    }  # fmt: skip


def test_features() -> None:
    text = (
        "Features for eth0:\nrx-checksumming: on\ntx-checksumming: on\n\ttx-checksum-ipv4: off [fixed]\n"
        "generic-segmentation-offload: off [requested on]\ngeneric-receive-offload: on\n"
        "large-receive-offload: off [fixed]\nntuple-filters off\nrx-gro-hw: on\n"
    )
    found, changeable = ethtool.features(text)
    assert found == {
        "rx-checksum": True, "tx-checksumming": True, "tx-checksum-ipv4": False, "rx-gro-hw": True,
        "tx-generic-segmentation": False, "rx-gro": True, "rx-lro": False,
    }  # fmt: skip
    assert changeable == ["rx-checksum", "tx-checksumming", "tx-generic-segmentation", "rx-gro", "rx-gro-hw"]


def test_pause() -> None:
    text = "Pause parameters for eth0:\nAutonegotiate:\ton\nRX:\t\ton\nTX:\t\toff\nRX negotiated:\ton\n"
    assert ethtool.pause(text) == {"autoneg": True, "rx": True, "tx": False}


def test_statistics() -> None:
    assert ethtool.statistics(
        "NIC statistics:\n     rx_packets: 3\n     [0]: rx_bytes: 12\n     x: n/a\n"
    ) == {
        "rx_packets": 3,
        "[0]: rx_bytes": 12,
    }
    with pytest.raises(ValueError):
        ethtool.statistics("no stats available\n")


def test_driver() -> None:
    text = (
        "driver: bnxt_en\nversion: 6.8.0\nfirmware-version: 229.0.154.0/pkg 229.1\nbus-info: 0000:3b:00.1\n"
    )
    assert ethtool.driver(text) == {
        "driver": "bnxt_en",
        "version": "6.8.0",
        "firmware": "229.0.154.0/pkg 229.1",
        "bus": "0000:3b:00.1",
    }


IP_LINK = """\
1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN mode DEFAULT group default qlen 1000
    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00
    RX:  bytes packets errors dropped  missed   mcast
        338428    3900      0       0       0       0
2: enp1s0f0: <BROADCAST,MULTICAST,SLAVE,UP,LOWER_UP> mtu 9000 qdisc mq master bond0 state UP mode DEFAULT
    link/ether 02:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff
    RX:  bytes packets errors dropped  missed   mcast
    9223372036 1234567      2       3       4      55
    RX errors:  length    crc   frame    fifo overrun
                     0      2       0       0       0
    TX:  bytes packets errors dropped carrier collsns
    4223372036 7654321      0       1       5       0
3: eth3: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 1500 qdisc mq state DOWN mode DEFAULT group default qlen 1000
    link/ether 02:00:00:00:00:02 brd ff:ff:ff:ff:ff:ff
    RX: bytes  packets  errors  dropped overrun mcast
    0          0        0       0       7       0
4: veth0@if5: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue state UP
    link/ether 02:00:00:00:00:03 brd ff:ff:ff:ff:ff:ff link-netnsid 0
"""


def test_ip_link() -> None:
    lo, first, dark, veth = ip_link.parse(IP_LINK)
    assert (lo.name, lo.kind, lo.state) == ("lo", "loopback", "unknown")
    assert (first.name, first.mtu, first.state, first.master, first.kind) == (
        "enp1s0f0", 9000, "up", "bond0", "ether",
    )  # fmt: skip
    assert first.statistics == {
        "rx_bytes": 9_223_372_036, "rx_packets": 1_234_567, "rx_errors": 2, "rx_dropped": 3,
        "rx_missed_errors": 4, "rx_length_errors": 0, "rx_crc_errors": 2, "rx_frame_errors": 0,
        "rx_fifo_errors": 0, "rx_over_errors": 0, "tx_bytes": 4_223_372_036, "tx_packets": 7_654_321,
        "tx_errors": 0, "tx_dropped": 1, "tx_carrier_errors": 5, "collisions": 0,
    }  # fmt: skip
    assert "NO-CARRIER" in dark.flags
    assert dark.statistics["rx_over_errors"] == 7
    assert veth.stacked


IBSTAT = """\
CA 'mlx5_0'
\tCA type: MT4123
\tNumber of ports: 2
\tFirmware version: 20.35.1012
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: 200
\t\tBase lid: 17
\t\tLink layer: InfiniBand
\tPort 2:
\t\tState: Initializing
\t\tPhysical state: LinkUp
\t\tRate: 100
\t\tBase lid: 65535
\t\tLink layer: InfiniBand
CA 'mlx5_bond_0'
\tFirmware version: 22.35.1012
\tPort 1:
\t\tState: Down
"""


def test_ibstat() -> None:
    first, second, third = ibstat.parse(IBSTAT)
    assert (first.device, first.port, first.fields["Rate"]) == ("mlx5_0", 1, "200")
    assert (second.port, ibstat.state(second.fields["State"])) == (2, "INIT")
    assert second.fields["Firmware version"] == "20.35.1012"
    assert (third.device, third.fields) == (
        "mlx5_bond_0",
        {"Firmware version": "22.35.1012", "State": "Down"},
    )


def test_ibstatus() -> None:
    text = (
        "Infiniband device 'mlx5_2' port 1 status:\n\tdefault gid:\t fe80::1\n\tbase lid:\t 0x11\n"
        "\tsm lid:\t\t 0x1\n\tstate:\t\t 4: ACTIVE\n\tphys state:\t 5: LinkUp\n"
        "\trate:\t\t 100 Gb/sec (4X EDR)\n\tlink_layer:\t InfiniBand\n"
    )
    (port,) = ibstat.parse_status(text)
    assert (port.device, port.port) == ("mlx5_2", 1)
    assert port.fields == {
        "Base lid": "0x11", "SM lid": "0x1", "State": "4: ACTIVE", "Physical state": "5: LinkUp",
        "Rate": "100 Gb/sec (4X EDR)", "Link layer": "InfiniBand",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("400 Gb/sec (4X NDR)", (400.0, 4, "NDR")),
        ("10 Gb/sec (4X)", (10.0, 4, "")),
        ("2.5 Gb/sec (1X SDR)", (2.5, 1, "SDR")),
        ("56", (56.0, None, "")),
        ("25.78125 Gb/sec", None),
        ("100Gb/s", None),
        ("", None),
        ("N/A", None),
    ],
)
def test_rates(text: str, rate: tuple[float, int | None, str] | None) -> None:
    if rate is not None:
        assert tuple(ibstat.rate(text)) == rate
    else:
        with pytest.raises(ValueError):
            ibstat.rate(text)


@pytest.mark.parametrize("text", ["4: LinkUp", "9: ACTIVE", "ACTIVE: 4", "", "state", "4:ACTIVE:x"])
def test_states_that_do_not_exist(text: str) -> None:
    with pytest.raises(ValueError):
        ibstat.state(text)


def test_states() -> None:
    assert [ibstat.state(s) for s in ("4: ACTIVE", "2: INIT", "Down", "Armed")] == [
        "ACTIVE",
        "INIT",
        "DOWN",
        "ARMED",
    ]
    assert [ibstat.physical_state(s) for s in ("5: LinkUp", "Polling", "7: Phy Test")] == [
        "LinkUp", "Polling", "Phy Test",
    ]  # fmt: skip
    with pytest.raises(ValueError):
        ibstat.physical_state("4: ACTIVE")


def test_softnet() -> None:
    words = ["0000000a", "00000002", "00000001", *["00000000"] * 9]
    assert softnet.parse(" ".join([*words, "00000005"])) == [softnet.Line(5, 10, 2, 1)]
    assert softnet.parse(" ".join(words[:9])) == [softnet.Line(None, 10, 2, 1)]
    for bad in ("", "0a 02 01", "xxxxxxxx 00000000 00000000", "00000001"):
        with pytest.raises(ValueError):
            softnet.parse(bad)


NET_DEV = """\
Inter-|   Receive                            |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
  eth0: 100      9    1    0    3     4          0         0      200    8    0    0    0     0       0          0
eth1.5:100      9    0    2    0     0          0         0      200     8    0    0    0     0       0          0
"""  # noqa: E501


def test_net_dev_knows_the_parts_of_a_sum_that_is_0() -> None:
    found = net_dev.parse(NET_DEV)
    assert found["eth0"]["rx_missed_errors"] == found["eth0"]["rx_dropped"] == 0
    assert "rx_crc_errors" not in found["eth0"]
    assert (found["eth0"]["rx_fifo_errors"], found["eth0"]["rx_packets"]) == (3, 9)
    assert "rx_missed_errors" not in found["eth1.5"]
    assert found["eth1.5"]["rx_crc_errors"] == 0
    for bad in ("", "eth0: 1 2 3\n", "eth0: a b\n"):
        with pytest.raises(ValueError):
            net_dev.parse(bad)


def test_packets_of_all_interfaces() -> None:
    assert net_dev.received(NET_DEV) == 18
    for bad in ("", "eth0:", "eth0: 1 x"):
        with pytest.raises(ValueError):
            net_dev.received(bad)


NCCL = """\
<system version="1"><cpu numaid="1" arch="x86_64"><pci busid="0000:98:00.0" link_width="16">
<pci busid="0000:99:00.0" class="0x020700" link_speed="16.0 GT/s PCIe" link_width="16"><nic>
<net name="mlx5_7" dev="7" speed="200000" port="1"/><net name="mlx5_8" dev="8" speed="100000" port="2"/>
</nic></pci></pci></cpu></system>"""


def test_nccl_topology() -> None:
    first, second = nccl_topology.parse(NCCL)
    assert first == nccl_topology.Port("mlx5_7", 1, 200_000, "0000:99:00.0", 16.0, 16, 1)
    assert (second.name, second.port, second.speed_mbps) == ("mlx5_8", 2, 100_000)
    assert len(nccl_topology.parse(NCCL[: NCCL.index("</nic>")])) == 2


def test_nccl_topology_refuses_declarations() -> None:
    with pytest.raises(ValueError):
        nccl_topology.parse('<!DOCTYPE system [<!ENTITY a "aaaa">]><system>&a;</system>')
    with pytest.raises(ValueError):
        nccl_topology.parse("<a>" * 1000)
    with pytest.raises(ValueError):
        nccl_topology.parse("no xml <<<")


_PIECES = st.lists(
    st.one_of(
        st.sampled_from(
            [
                *SETTINGS.splitlines(), *RINGS.splitlines(), *IP_LINK.splitlines(), *IBSTAT.splitlines(),
                *NET_DEV.splitlines(), "NIC statistics:", "Adaptive RX: on TX: off", "rx-usecs: 9" + "9" * 30,
                "large-receive-offload: on [fixed]", "RX: ²", "Port ٣:", "\tPort 1:",
                "0000000a 00000002 00000001",
            ]
        ),
        st.text(max_size=40),
    ),
    max_size=12,
)  # fmt: skip


@given(_PIECES)
def test_no_text_stops_a_parser(pieces: list[str]) -> None:
    text = "\n".join(pieces)
    for parse in (
        ethtool.interface, ethtool.settings, ethtool.rings, ethtool.channels, ethtool.coalescing,
        ethtool.features, ethtool.pause, ethtool.driver, ip_link.parse, ibstat.parse, ibstat.parse_status,
    ):  # fmt: skip
        parse(text)  # type: ignore[operator]
    for parse in (
        ethtool.statistics, softnet.parse, net_dev.parse, nccl_topology.parse, ibstat.state,
        ibstat.physical_state, ibstat.rate,
    ):  # fmt: skip
        with contextlib.suppress(ValueError):
            parse(text)  # type: ignore[operator]
