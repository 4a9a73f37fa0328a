"""What the network probe reads from trees, libraries and pasted texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hwtune.fact import ABSENT, DENIED, INVALID, NOT_CAPTURED, NOT_PROBED, UNREADABLE
from hwtune.probes import network
from tests.support import Gap, Link, host
from tests.support.network import DARK, SETTINGS, ethtool, ib_port, nic

if TYPE_CHECKING:
    from pathlib import Path

    from hwtune.model.network import Nic


def only(tmp_path: Path, files: Any, **options: Any) -> Nic:
    (found,) = network.read(host(tmp_path, files, **options)).nics
    return found


# -- interfaces -------------------------------------------------------------------------------


def test_an_interface_with_a_link(tmp_path: Path) -> None:
    seen = network.read(host(tmp_path, nic(), complete=True, libraries=ethtool()))
    (found,) = seen.nics
    assert seen.listed.value is True
    assert (found.name, found.virtual) == ("eth0", False)
    assert (found.pci_address.value, found.driver.value, found.numa_node.value) == ("0000:01:00.0", "ice", 0)
    assert (found.admin_up.value, found.carrier.value, found.operstate.value) == (True, True, "up")
    assert (found.speed_mbps.value, found.duplex.value, found.mtu.value) == (25_000, "full", 1500)
    assert found.link_layer.value == "ethernet"
    assert found.speed_mbps.source == "/sys/class/net/eth0/speed"
    assert (found.carrier_changes.value, found.carrier_up_count.value) == (2, 1)
    assert found.statistics.get()["rx_packets"] == 5_000_000
    assert (found.queues.value, found.rps_cpus.value) == (2, {})
    assert found.master.absent
    assert found.coalescing.get()["rx_usecs"] == 0
    assert found.coalescing.source == "ethtool -c eth0 (netlink)"
    assert found.rings.value == SETTINGS["rings"]
    assert found.channels.get()["combined"] == 2
    assert found.features.get()["rx-lro"] is False
    assert "rx-lro" in found.changeable_features.get()
    assert (found.max_speed_mbps.value, found.advertised_speed_mbps.value) == (25_000, 25_000)
    assert found.partner_speed_mbps.absent
    assert found.autoneg.value is False
    assert found.pause.value == {"autoneg": False, "rx": False, "tx": False}
    assert found.pause_frames.value == {"rx": 0, "tx": 0}
    assert "xsk-zerocopy" in found.xdp_features.get()
    assert found.firmware.value == "4.40 0x8001c7d4 1.3534.0"


def test_virtio_lies_below_its_pci_function(tmp_path: Path) -> None:
    found = only(tmp_path, nic(parent="virtio2", driver="virtio_net", speed="-1\n", duplex="unknown\n"))
    assert (found.pci_address.value, found.driver.value) == ("0000:01:00.0", "virtio_net")
    assert found.numa_node.value == 0
    assert found.speed_mbps.absent


def test_a_usb_adapter_is_no_pci_function(tmp_path: Path) -> None:
    found = only(tmp_path, nic(parent="usb1/1-1/1-1:1.0", without=("device",)))
    assert found.pci_address.gap == ABSENT


@pytest.mark.parametrize("speed", ["-1", "65535", "4294967295"])
def test_speeds_that_are_none(tmp_path: Path, speed: str) -> None:
    assert only(tmp_path, nic(speed=speed)).speed_mbps.gap == ABSENT


def test_a_driver_that_knows_no_speed(tmp_path: Path) -> None:
    """speed_show of net-sysfs.c answers EINVAL where the driver cannot tell, or the interface is down."""
    refused = Gap(UNREADABLE, "Invalid argument")
    assert only(tmp_path, nic(speed=refused)).speed_mbps.gap == ABSENT
    assert only(tmp_path, nic(speed=refused, carrier=refused)).speed_mbps.gap == UNREADABLE
    assert only(tmp_path, nic(speed=Gap(UNREADABLE, "Input/output error"))).speed_mbps.gap == UNREADABLE


def test_interfaces_of_virtual_functions_and_without_a_wire(tmp_path: Path) -> None:
    files = nic("eth0") | nic("eth1", "0000:01:00.1", phys_port_name="pf0vf3\n")
    files |= nic("wlan0", "0000:02:00.0")
    files["/sys/devices/pci0000:00/0000:00:01.0/0000:02:00.0/net/wlan0/phy80211/name"] = "phy0\n"
    found = network.read(host(tmp_path, files)).nics
    assert [(n.name, n.virtual) for n in found] == [("eth0", False), ("eth1", True)]


def test_counters_of_a_driver_are_recorded_in_a_capture(tmp_path: Path) -> None:
    libraries = ethtool()
    libraries["ethtool", "statistics", "eth0"] = {"rx_xoff": 3}
    found = only(tmp_path, nic(), libraries=libraries)
    assert (found.driver_statistics.value, found.driver_statistics.source) == (
        {"rx_xoff": 3},
        "ethtool -S eth0",
    )


def test_a_live_driver_is_asked_for_few_counters_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of ENA, and those of Intel's where flow control is on and nobody else counts its frames."""

    def asked(driver: str, **groups: Any) -> bool:
        libraries = ethtool(**groups)
        libraries["ethtool", "statistics", "eth0"] = {"n": 1}
        seen = host(tmp_path, nic(driver=driver), complete=True, libraries=libraries)
        seen.kind = "live"
        return network.read(seen).nics[0].driver_statistics.known

    on = {"autoneg": True, "rx": True, "tx": True}
    assert asked("ena")
    assert not asked("mlx5_core", pause=on)
    assert asked("igb", pause=on)
    assert not asked("igb", pause={**on, "rx_frames": 0})
    assert not asked("igb", pause={**on, "rx": False})


def test_an_interface_that_is_down(tmp_path: Path) -> None:
    """The kernel answers EINVAL for the carrier and the speed; its settings are nobody's concern."""
    down = {n: Gap(UNREADABLE, "Invalid argument") for n in ("carrier", "speed", "duplex")}
    found = only(
        tmp_path, nic(flags="0x1002\n", operstate="down\n", **down), complete=True, libraries=ethtool()
    )
    assert found.admin_up.value is False
    assert found.carrier.gap == found.speed_mbps.gap == UNREADABLE
    assert found.coalescing.gap == found.driver_statistics.gap == NOT_PROBED
    assert "is down" in found.coalescing.why()


def test_a_suspended_device_is_not_woken(tmp_path: Path) -> None:
    files = nic()
    files["/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/power/runtime_status"] = "suspended\n"
    found = only(tmp_path, files, complete=True, libraries=ethtool())
    assert found.coalescing.gap == UNREADABLE
    assert "wake" in found.coalescing.why()


def test_software_interfaces_are_left_out(tmp_path: Path) -> None:
    files = nic(master="bond0")
    for name in ("lo", "bond0", "veth12", "eth0.5"):
        files[f"/sys/class/net/{name}"] = Link(f"../../devices/virtual/net/{name}")
        files[f"/sys/devices/virtual/net/{name}/operstate"] = "up\n"
    files["/sys/class/net/bonding_masters"] = "bond0\n"
    found = only(tmp_path, files)
    assert (found.name, found.master.value) == ("eth0", "bond0")


def test_interfaces_are_in_their_order(tmp_path: Path) -> None:
    files = {}
    for number in (10, 2, 1):
        files.update(nic(f"eth{number}", f"0000:01:00.{number % 8}"))
    assert [n.name for n in network.read(host(tmp_path, files)).nics] == ["eth1", "eth2", "eth10"]


def test_a_container_sees_no_device(tmp_path: Path) -> None:
    files = {
        "/sys/class/net/eth0": Link("../../devices/virtual/net/eth0"),
        "/sys/devices/virtual/net/eth0/operstate": "up\n",
    }
    seen = network.read(host(tmp_path, files, complete=True))
    assert seen.nics == []
    assert seen.listed.known


def test_a_tree_without_the_class(tmp_path: Path) -> None:
    """Interfaces are found below their PCI functions, and the list is not whole."""
    files = {p: c for p, c in nic().items() if not p.startswith("/sys/class")}
    files = {
        p.replace("/sys/devices/pci0000:00/0000:00:01.0/", "/sys/bus/pci/devices/"): c
        for p, c in files.items()
    }
    files.pop("/sys/bus/pci/devices/0000:01:00.0/driver")
    files["/sys/bus/pci/devices/0000:01:00.0/net/eth0/flags"] = "flags\n"
    files = {p: c for p, c in files.items() if not isinstance(c, Link)}
    seen = network.read(host(tmp_path, files))
    assert [n.name for n in seen.nics] == ["eth0"]
    assert seen.listed.gap == NOT_CAPTURED
    assert seen.nics[0].pci_address.value == "0000:01:00.0"
    # the flags make no sense; an interface with a carrier is up
    assert seen.nics[0].admin_up.value is True


def test_steering_of_queues(tmp_path: Path) -> None:
    found = only(tmp_path, nic(rps=("0", "c", "00000000,00000100")))
    assert found.rps_cpus.value == {"rx-1": [2, 3], "rx-2": [8]}
    assert only(tmp_path, nic(rps=("0", "zz"))).rps_cpus.gap == INVALID


def test_routes_are_asked_of_dark_interfaces_only(tmp_path: Path) -> None:
    table = "Iface\tDestination\tGateway\nib0\t00000000\t0100000A\neth1\t0000000A\t00000000\n"
    files = {**nic(), **nic("eth1", "0000:02:00.0", **DARK), "/proc/net/route": table}
    first, second = network.read(host(tmp_path, files)).nics
    assert first.routed.gap == NOT_PROBED
    assert second.routed.value is True


def test_totals_stand_in_for_counters(tmp_path: Path) -> None:
    files = {p: c for p, c in nic().items() if "/statistics/" not in p}
    files["/proc/net/dev"] = "eth0: 100 9 0 0 0 0 0 0 200 8 0 0 0 0 0 0\n"
    found = only(tmp_path, files)
    assert found.statistics.source == "/proc/net/dev"
    assert found.statistics.get()["rx_missed_errors"] == 0


def test_what_a_driver_refuses(tmp_path: Path) -> None:
    said = ethtool(coalescing=None, pause=None)
    said["ethtool", "settings", "eth0"]["refused"] |= {"channels": "EPERM", "rings": "EIO", "xdp": "ENOENT"}
    for group in ("channels", "rings", "xdp"):
        said["ethtool", "settings", "eth0"].pop(group)
    found = only(tmp_path, nic(), complete=True, libraries=said)
    assert found.coalescing.gap == found.pause.gap == found.pause_frames.gap == ABSENT
    assert found.channels.gap == DENIED
    assert (found.rings.gap, found.rings.detail) == (UNREADABLE, "EIO")
    assert found.xdp_features.gap == ABSENT


def test_a_library_without_an_answer(tmp_path: Path) -> None:
    gone = Gap(UNREADABLE, "this kernel has no ethtool in netlink")
    found = only(tmp_path, nic(), complete=True, libraries={("ethtool", "settings", "eth0"): gone})
    assert found.coalescing.source == "ethtool -c eth0"
    assert found.coalescing.gap == found.xdp_features.gap == UNREADABLE
    assert "no ethtool in netlink" in found.rings.why()


@pytest.mark.parametrize("content", ["", "\0\xff", "x" * 3000, "-", "1e9", "٣"])
def test_no_content_stops_the_probe(tmp_path: Path, content: str) -> None:
    files = {p: (content if isinstance(c, str) else c) for p, c in {**nic(), **ib_port()}.items()}
    files["/proc/net/softnet_stat"] = files["/proc/net/dev"] = files["/proc/net/route"] = content
    seen = network.read(host(tmp_path, files))
    assert len(seen.nics) == len(seen.ib_ports) == 1


def test_folders_in_the_place_of_files(tmp_path: Path) -> None:
    files = {f"{p}/x" if isinstance(c, str) else p: c for p, c in {**nic(), **ib_port()}.items()}
    seen = network.read(host(tmp_path, files))
    assert len(seen.nics) == 1
    assert seen.nics[0].speed_mbps.gap == UNREADABLE


# -- softirqs ---------------------------------------------------------------------------------


def test_softnet_by_the_cpus_own_number(tmp_path: Path) -> None:
    zeros = " ".join(["00000000"] * 9)
    text = f"0000000a 00000001 00000002 {zeros} 00000000\n00000014 00000000 00000000 {zeros} 00000007\n"
    found = network.read(host(tmp_path, {"/proc/net/softnet_stat": text})).softnet.get()
    assert [(c.cpu, c.processed, c.dropped, c.squeezed) for c in found] == [(0, 10, 1, 2), (7, 20, 0, 0)]


def test_softnet_of_old_kernels(tmp_path: Path) -> None:
    """Lines are of the CPUs online, in their order."""
    text = "00000001 00000000 00000000\n00000002 00000000 00000000\n"
    online = "/sys/devices/system/cpu/online"
    seen = network.read(host(tmp_path, {"/proc/net/softnet_stat": text, online: "0,4\n"}))
    assert [c.cpu for c in seen.softnet.get()] == [0, 4]
    seen = network.read(host(tmp_path, {"/proc/net/softnet_stat": text, online: "0-3\n"}))
    assert seen.softnet.gap == INVALID
    assert network.read(host(tmp_path, {"/proc/net/softnet_stat": text})).softnet.gap == NOT_CAPTURED


# -- pasted texts -----------------------------------------------------------------------------


def test_texts_of_one_interface(tmp_path: Path) -> None:
    """A text without a name belongs to the one interface that the others are of."""
    seen = network.read(
        host(
            tmp_path,
            {},
            documents={
                "a.txt": "Ring parameters for eno1:\nPre-set maximums:\nRX:\t4096\nTX:\t4096\n"
                "Current hardware settings:\nRX:\t256\nTX:\t256\n",
                "b.txt": "NIC statistics:\n     rx_packets: 5\n     rx_missed_errors: 1\n",
                "c.txt": "driver: ixgbe\nversion: 6.1\nfirmware-version: 0x80000\nbus-info: 0000:04:00.1\n",
            },
        )
    )
    (found,) = seen.nics
    assert found.name == "eno1"
    assert found.rings.value == {"rx_max": 4096, "rx": 256, "tx_max": 4096, "tx": 256}
    assert found.driver_statistics.get()["rx_missed_errors"] == 1
    assert (found.driver.value, found.pci_address.value) == ("ixgbe", "0000:04:00.1")
    assert (found.coalescing.gap, found.coalescing.source) == (NOT_CAPTURED, "ethtool -c eno1")
    assert seen.listed.gap == NOT_CAPTURED


def test_texts_below_prompts(tmp_path: Path) -> None:
    text = (
        "$ ethtool -S ens1f0\nNIC statistics:\n     rx_packets: 7\n\n"
        "$ ethtool -S ens1f1\nNIC statistics:\n     rx_packets: 9\n"
    )
    nics = network.read(host(tmp_path, {}, documents={"pasted.txt": text})).nics
    assert [(n.name, n.driver_statistics.get()["rx_packets"]) for n in nics] == [("ens1f0", 7), ("ens1f1", 9)]


def test_texts_without_any_name(tmp_path: Path) -> None:
    documents = {n: f"NIC statistics:\n     rx_packets: {n}\n" for n in ("1", "2")}
    nics = network.read(host(tmp_path, {}, documents=documents)).nics
    assert [n.name for n in nics] == ["?", "?"]


def test_texts_add_to_a_tree(tmp_path: Path) -> None:
    """What the tree says stands; interfaces that it does not list are none of its."""
    documents = {
        "a.txt": "Coalesce parameters for eth0:\nAdaptive RX: on  TX: on\nrx-usecs: 8\n",
        "b.txt": "Settings for eth0:\n\tSpeed: 100Mb/s\n\tSupported link modes: 25000baseSR/Full\n",
        "c.txt": "Coalesce parameters for eth7:\nAdaptive RX: on  TX: on\n",
    }
    found = only(tmp_path, nic(), documents=documents)
    assert found.coalescing.value == {"use_adaptive_rx": 1, "use_adaptive_tx": 1, "rx_usecs": 8}
    assert found.coalescing.source.endswith("a.txt")
    assert (found.speed_mbps.value, found.max_speed_mbps.value) == (25_000, 25_000)


def test_settings_that_a_driver_refuses_in_a_text(tmp_path: Path) -> None:
    documents = {"a.txt": "Coalesce parameters for usb0:\nnetlink error: Operation not supported\n"}
    found = only(tmp_path, {}, documents=documents)
    assert found.coalescing.gap == ABSENT


def test_ip_link_lists_interfaces(tmp_path: Path) -> None:
    text = (
        "1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN\n    link/loopback 00:00\n"
        "    RX: bytes packets errors dropped missed mcast\n    1 1 0 0 0 0\n"
        "2: eno1: <BROADCAST,UP,LOWER_UP> mtu 1500 qdisc mq master bond0 state UP\n    link/ether 02:00\n"
        "    RX: bytes packets errors dropped missed mcast\n    900 10 0 0 3 0\n"
        "3: bond0: <BROADCAST,MASTER,UP,LOWER_UP> mtu 1500 state UP\n    link/ether 02:00 brd ff:ff\n"
    )
    seen = network.read(host(tmp_path, {}, documents={"ip.txt": text}))
    (found,) = seen.nics
    assert (found.name, found.carrier.value, found.master.value, found.mtu.value) == (
        "eno1",
        True,
        "bond0",
        1500,
    )
    assert found.statistics.get()["rx_missed_errors"] == 3
    assert seen.listed.known


# -- RDMA -------------------------------------------------------------------------------------


def test_an_infiniband_port(tmp_path: Path) -> None:
    seen = network.read(host(tmp_path, ib_port(interface="ib0", counters={"link_downed": 3}), complete=True))
    (port,) = seen.ib_ports
    assert (port.device, port.port, port.link_layer.value) == ("mlx5_0", 1, "InfiniBand")
    assert (port.state.value, port.physical_state.value) == ("ACTIVE", "LinkUp")
    assert (port.rate_gbps.value, port.rate_text.value) == (400.0, "400 Gb/sec (4X NDR)")
    assert (port.pci_address.value, port.numa_node.value, port.lid.value) == ("0000:41:00.0", 1, 27)
    assert (port.firmware.value, port.board_id.value) == ("28.41.1000", "MT_0000000838")
    assert port.netdevs == ["ib0"]
    assert port.counters.get()["link_downed"] == 3
    assert seen.ib_listed.value is True


def test_a_machine_without_rdma(tmp_path: Path) -> None:
    seen = network.read(host(tmp_path, nic(), complete=True))
    assert seen.ib_ports == []
    assert seen.ib_listed.absent
    assert network.read(host(tmp_path, nic())).ib_listed.gap == NOT_CAPTURED


def test_a_device_that_counts_nothing(tmp_path: Path) -> None:
    files = ib_port(counters={"symbol_error": "N/A (no PMA)"})
    assert network.read(host(tmp_path, files)).ib_ports[0].counters.gap == ABSENT


def test_interfaces_of_a_device_with_two_ports(tmp_path: Path) -> None:
    files = {**ib_port("mlx4_0", port=1, interface="ib0"), **ib_port("mlx4_0", port=2, interface="ib1")}
    ports = network.read(host(tmp_path, files)).ib_ports
    assert [(p.port, p.netdevs) for p in ports] == [(1, ["ib0"]), (2, ["ib1"])]


def test_ports_are_in_their_order(tmp_path: Path) -> None:
    files = {}
    for number in (10, 9, 0):
        files.update(ib_port(f"mlx5_{number}", f"0000:4{number % 8}:00.0"))
    assert [p.device for p in network.read(host(tmp_path, files)).ib_ports] == ["mlx5_0", "mlx5_9", "mlx5_10"]


def test_ports_of_a_text(tmp_path: Path) -> None:
    text = "CA 'mlx5_3'\n\tPort 1:\n\t\tState: Active\n\t\tRate: 200\n\t\tBase lid: 0x10\n"
    (port,) = network.read(host(tmp_path, {}, documents={"ibstat.txt": text})).ib_ports
    assert (port.device, port.state.value, port.rate_gbps.value, port.lid.value) == (
        "mlx5_3",
        "ACTIVE",
        200.0,
        16,
    )
    assert port.physical_state.gap == NOT_CAPTURED


def test_ports_of_a_topology(tmp_path: Path) -> None:
    text = (
        '<system version="1"><cpu numaid="0">'
        '<pci busid="0000:61:00.0" link_speed="16.0 GT/s PCIe" link_width="16">'
        '<nic><net name="mlx5_4" speed="200000" port="1"/><net name="eth0" speed="10000" port="0"/></nic>'
        "</pci></cpu></system>"
    )
    (port,) = network.read(host(tmp_path, {}, documents={"topology.xml": text})).ib_ports
    assert (port.device, port.rate_gbps.value, port.pci_address.value) == ("mlx5_4", 200.0, "0000:61:00.0")
    # 16 GT/s, 16 lanes, 128 of 130 bits are data
    assert round(port.slot_gbps.get()) == 252
