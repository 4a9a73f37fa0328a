"""What the rows about network interfaces and RDMA ports share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwtune.fact import NOT_CAPTURED, Fact, gap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hwtune.diagnosis import Verdict
    from hwtune.model import Machine
    from hwtune.model.network import IbPort, Nic

ETHTOOL = "ethtool(8)"
NETLINK = "Linux Documentation/networking/ethtool-netlink.rst"
STATISTICS = "Linux include/uapi/linux/if_link.h, rtnl_link_stats64"
NO_LINK = "no network interface here has a link"

_DOWN = ("down", "notpresent", "lowerlayerdown")


def physical(machine: Machine) -> list[Nic]:
    return [nic for nic in machine.network.nics if not nic.virtual]


def subject(nic: Nic) -> str:
    return f"nic:{nic.name}"


def call(nic: Nic) -> str:
    """Its name in a sentence."""
    return nic.name if nic.name != "?" else "the interface"


def opening(nic: Nic) -> str:
    """Its name at the beginning of one."""
    return nic.name if nic.name != "?" else "The interface"


def running(nic: Nic) -> bool:
    """Whether it has a link, as far as that is known: a text about one setting does not tell."""
    if nic.carrier.known:
        return nic.carrier.get()
    return nic.admin_up.value is not False and nic.operstate.value not in _DOWN


def none_here(verdict: Verdict, machine: Machine) -> Verdict:
    """The verdict of a row that found no interface."""
    listed = machine.network.listed
    if listed.known or listed.absent:
        return verdict.not_applicable("there is no wired network interface here")
    return verdict.unknown("kernel", listed)


def judge(
    verdict: Verdict, machine: Machine, check: Callable[[Verdict, Nic], Sequence[Fact[Any]] | None]
) -> Verdict:
    """Ask ``check`` of each interface that has a link. It notes what it finds, or returns the facts
    for want of which it could not."""
    nics = physical(machine)
    if not nics:
        return none_here(verdict, machine)
    missing = []
    for nic in nics:
        if not running(nic):
            verdict.not_applicable(NO_LINK)
            continue
        unread = check(verdict, nic)
        if unread:
            missing.append((subject(nic), unread))
    unknown(verdict, missing)
    return verdict


def unknown(verdict: Verdict, missing: Sequence[tuple[str, Sequence[Fact[Any]]]]) -> None:
    """Note what could not be judged: alike ones once, with the first of them."""
    alike: dict[tuple[Any, ...], list[tuple[str, Sequence[Fact[Any]]]]] = {}
    for entry in missing:
        key = tuple((fact.gap, fact.detail) for fact in entry[1])
        alike.setdefault(key, []).append(entry)
    for (name, facts), *others in alike.values():
        if not others:
            verdict.unknown(name, *facts)
            continue
        why = "; ".join(fact.why() for fact in facts)
        more = ", ".join(other[0].partition(":")[2] for other in others[:8]) + (
            " ..." if len(others) > 8 else ""
        )
        remedy = "run as root" if any(fact.gap == "denied" for fact in facts) else ""
        verdict.unknown(name, f"{why}; the same of {more}", remedy=remedy)


def is_slow(nic: Nic) -> bool:
    """A link of at most 1 Gb/s: hardly one on which a hot thread waits."""
    return nic.speed_mbps.known and nic.speed_mbps.get() <= 1000


def port_of(machine: Machine, nic: Nic) -> IbPort | None:
    """The RDMA port of an interface."""
    return next((port for port in machine.network.ib_ports if nic.name in port.netdevs), None)


def call_port(port: IbPort) -> str:
    return f"{port.device}/{port.port}"


def ib_subject(port: IbPort) -> str:
    return f"ib:{call_port(port)}"


def gbps(mbps: int) -> str:
    """ "25 Gb/s", "100 Mb/s"."""
    return f"{mbps / 1000:g} Gb/s" if mbps >= 1000 else f"{mbps} Mb/s"


def per_million(part: int, whole: int) -> float:
    return 1e6 * part / whole if whole else 0.0


def ppm(share: float) -> str:
    """Per million, with the digits that matter."""
    return f"{share:,.0f}" if share >= 100 else f"{share:.2g}" if share < 1 else f"{share:.1f}"


# -- counters -------------------------------------------------------------------------------


def counts(nic: Nic, names: Sequence[str]) -> Fact[dict[str, int]]:
    """Those of the counters that are known: the kernel's, or else the driver's own."""
    found = nic.statistics.map(lambda values: {n: values[n] for n in names if n in values})
    if found.value:
        return found
    own = nic.driver_statistics.map(lambda values: {n: values[n] for n in names if n in values})
    if own.value:
        return own
    return gap(NOT_CAPTURED, found.source, f"it has no {names[0]}") if found.known else found


_CASTS = ("rx_ucast_packets", "rx_mcast_packets", "rx_bcast_packets")


def received(nic: Nic) -> int | None:
    """Packets received, where that is known."""
    for fact in (nic.statistics, nic.driver_statistics):
        if fact.known and "rx_packets" in fact.get():
            return fact.get()["rx_packets"]
    if nic.driver_statistics.known:
        values = nic.driver_statistics.get()
        parts = by_queue(values, "rx_pkts")
        parts = parts or [values[name] for name in _CASTS if name in values]
        if parts:
            return sum(parts)
    return None


def by_queue(values: dict[str, int], name: str) -> list[int]:
    """A counter of each receive queue, as the driver be2net calls them ("rxq0: rx_pkts")."""
    return [n for key, n in values.items() if key.startswith("rxq") and key.endswith(f": {name}")]


def uncounted(fact: Fact[Any]) -> Fact[Any]:
    """What is missing where a text has the losses and not the packets."""
    return gap(NOT_CAPTURED, fact.source, "it does not say how many packets were received")
