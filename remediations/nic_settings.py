"""Rows: how network interfaces are set: interrupts, queues, offloads, flow control, polling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwtune.changes import NicSetting, SysctlChange, SysfsAttribute
from hwtune.diagnosis import Verdict, evidence, fact_evidence
from hwtune.diagnosis.row import row
from hwtune.fact import Fact
from hwtune.model.intent import hot_cpus, housekeeping_cpus
from hwtune.remediations import _nic
from hwtune.remediations._common import fix, plural, sysctl_number
from hwtune.remediations._isolation import cpus_of
from hwtune.remediations._nic import ETHTOOL, NETLINK, call, opening, subject
from hwtune.text.cpulist import format_list, format_mask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hwtune.diagnosis.verdict import Evidence
    from hwtune.model import Machine
    from hwtune.model.network import Nic
    from hwtune.profile import Profile

_NAPI = "Linux Documentation/networking/napi.rst"
_SYSCTL = "Linux Documentation/admin-guide/sysctl/net.rst"


# -- interrupts -------------------------------------------------------------------------------


@row(
    "nic.coalescing",
    title="Interrupts of received packets come at once",
    symptom="A lone packet waits for tens of microseconds in the NIC before anybody hears of it.",
    cause="The NIC gathers packets and raises one interrupt for many, after a delay that it may choose.",
    severity="warning",
    scope="runtime",
    risk="Under load there are more interrupts, each of some microseconds of a CPU.",
    cost="CPU time at high packet rates.",
    sources=(
        f"{ETHTOOL} -c, -C",
        f"{NETLINK} (COALESCE_GET)",
        "Linux drivers/net/ethernet/intel: igb_get_coalesce, ixgbe_get_coalesce (values that mean a mode)",
    ),
)
def coalescing(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()

    def check(verdict: Verdict, nic: Nic) -> Sequence[Fact[Any]] | None:
        return _coalescing(verdict, machine, profile, nic)

    return _nic.judge(verdict, machine, check)


# Drivers to which some rx-usecs are no microseconds but ways to adapt the delay to the traffic.
_ADAPTING = {
    "e1000": (1, 3, 4),
    "e1000e": (1, 3, 4),
    "igb": (1, 3),
    "igbvf": (1, 3),
    "igc": (1, 3),
    "ixgbe": (1,),
    "ixgbevf": (1,),
    "ngbe": (1,),
    "txgbe": (1,),
}
# ... and of these those that take no value between these modes and the microseconds, which begin at 10.
_FROM_TEN = ("e1000", "e1000e", "igb", "igbvf", "igc")


def _coalescing(verdict: Verdict, machine: Machine, profile: Profile, nic: Nic) -> Sequence[Fact[Any]] | None:
    if nic.coalescing.absent:
        verdict.not_applicable("the driver does not let interrupts be set")
        return None
    if not nic.coalescing.known:
        return [nic.coalescing]
    values = nic.coalescing.get()
    delay, limit = values.get("rx_usecs"), profile.nic.rx_usecs_max
    mode = delay in _ADAPTING.get(nic.driver.value or "", ())
    adapts = bool(values.get("use_adaptive_rx")) or mode
    if delay is None and "use_adaptive_rx" not in values:
        verdict.not_applicable("the driver does not let the delay of interrupts be set")
        return None
    wrong = adapts and not profile.nic.adaptive_coalescing
    if not wrong and (adapts or delay is None or delay <= limit):
        verdict.ok(evidence(nic.coalescing.source, _shown(nic, values)))
        return None
    wanted, messages = _wanted(values, profile, mode, nic.driver.value in _FROM_TEN)
    verdict.finding(
        subject(nic),
        f"{opening(nic)} holds interrupts of received packets back: {' and '.join(messages)}.",
        evidence(nic.coalescing.source, _shown(nic, values), " ".join(f"{k} {v}" for k, v in wanted)),
        *([fact_evidence(nic.driver)] if mode else []),
        severity="info" if _nic.is_slow(nic) else None,
        **fix(machine, NicSetting(nic.name, "coalesce", tuple(wanted))),
    )
    return None


def _wanted(
    values: dict[str, int], profile: Profile, mode: bool, from_ten: bool
) -> tuple[list[tuple[str, str]], list[str]]:
    """What to set, in ethtool's words, and what is wrong, in a reader's."""
    wanted, messages = [], []
    if values.get("use_adaptive_rx") and not profile.nic.adaptive_coalescing:
        wanted.append(("adaptive-rx", "off"))
        messages.append("it adapts the delay to the traffic")
    delay, limit = values.get("rx_usecs"), profile.nic.rx_usecs_max
    best = "0" if from_ten and limit < 10 else str(limit)
    if mode and not profile.nic.adaptive_coalescing:
        wanted.append(("rx-usecs", best))
        messages.append(f"rx-usecs {delay} tells this driver to adapt the delay to the traffic")
    elif delay is not None and not mode and delay > limit:
        wanted.append(("rx-usecs", best))
        messages.append(f"it waits {delay} us")
    return wanted, messages


def _shown(nic: Nic, values: dict[str, int]) -> str:
    words = []
    if "use_adaptive_rx" in values:
        words.append(f"adaptive-rx {'on' if values['use_adaptive_rx'] else 'off'}")
    if "rx_usecs" in values:
        words.append(f"rx-usecs {values['rx_usecs']}")
    return f"{nic.name}: {' '.join(words)}"


@row(
    "nic.irq-deferral",
    title="The kernel does not hold interrupts back",
    symptom="Packets wait for up to the timer's period, though the NIC raises interrupts at once.",
    cause=(
        "With napi_defer_hard_irqs and gro_flush_timeout the kernel polls by a timer before it listens to "
        "interrupts again: right for programs that poll (SO_PREFER_BUSY_POLL), a delay for all others."
    ),
    severity="info",
    scope="runtime",
    risk="Programs that prefer busy polling get interrupts again.",
    cost="None.",
    sources=(f"{_NAPI} (software IRQ coalescing, IRQ mitigation)",),
)
def irq_deferral(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()

    def check(verdict: Verdict, nic: Nic) -> Sequence[Fact[Any]] | None:
        return _deferral(verdict, machine, profile, nic)

    return _nic.judge(verdict, machine, check)


def _deferral(verdict: Verdict, machine: Machine, profile: Profile, nic: Nic) -> Sequence[Fact[Any]] | None:
    times, period = nic.napi_defer_hard_irqs, nic.gro_flush_timeout_ns
    if times.absent or period.absent:
        verdict.not_applicable("this kernel cannot hold interrupts back")
        return None
    unread = [fact for fact in (times, period) if not fact.known]
    if unread:
        return unread
    if not times.get() or period.get() <= profile.nic.rx_usecs_max * 1000:
        verdict.ok(fact_evidence(times), fact_evidence(period))
        return None
    verdict.finding(
        subject(nic),
        f"{opening(nic)} is polled by a timer of {period.get() / 1000:g} us before its interrupts are "
        "listened to again, unless a program polls it.",
        fact_evidence(times, "0"),
        fact_evidence(period, f"at most {profile.nic.rx_usecs_max * 1000}"),
        **fix(
            machine,
            *(SysfsAttribute(fact.source, "0", persist="udev") for fact in (times, period)),
        ),
    )
    return None


# -- queues -----------------------------------------------------------------------------------


@row(
    "nic.channels",
    title="Queues that fit the CPUs",
    symptom="Queues share a CPU, interrupt isolated ones, or a flow goes in and out on different CPUs.",
    cause="Drivers make a queue for each CPU, however many of these are kept apart, or unequal numbers.",
    severity="warning",
    scope="runtime",
    risk="The link is reset on many drivers, and flows move to other queues.",
    cost="Throughput, if there are too few.",
    sources=(f"{ETHTOOL} -l, -L", f"{NETLINK} (CHANNELS_GET)", f"{_NAPI} (channels)"),
)
def channels(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()

    def check(verdict: Verdict, nic: Nic) -> Sequence[Fact[Any]] | None:
        return _channels(verdict, machine, profile, nic)

    return _nic.judge(verdict, machine, check)


def _channels(verdict: Verdict, machine: Machine, profile: Profile, nic: Nic) -> Sequence[Fact[Any]] | None:
    if nic.channels.absent or nic.channels.value == {}:
        verdict.not_applicable("the driver does not let its channels be set")
        return None
    if not nic.channels.known:
        return [nic.channels]
    values = nic.channels.get()
    combined, receive, send = (values.get(name, 0) for name in ("combined", "rx", "tx"))
    if not combined and receive and send and receive != send:
        _uneven(verdict, machine, nic, receive, send)
        return None
    queues = combined + receive
    hot = hot_cpus(machine, profile)
    if not hot.known and queues > 1:
        return [hot]
    if not hot.value:
        verdict.ok(evidence(nic.channels.source, f"{nic.name}: {_count(values)}"))
        return None
    near = _near(machine, nic, hot.get())
    if not near.known:
        return [near]
    if queues <= len(near.get()):
        verdict.ok(evidence(nic.channels.source, f"{nic.name}: {_count(values)}"), _cpus(near))
        return None
    name = "combined" if combined else "rx"
    best = max(1, len(near.get()) - (receive if combined else 0))
    wanted = [(name, str(best))] + ([("tx", str(min(send, best)))] if name == "rx" and send else [])
    cpus = plural(len(near.get()), "housekeeping CPU")
    verdict.finding(
        subject(nic),
        f"{opening(nic)} has {plural(queues, 'receive queue')} for {cpus}: "
        "interrupts of several queues share a CPU, or go to isolated ones.",
        evidence(nic.channels.source, _count(values), " ".join(f"{k} {v}" for k, v in wanted)),
        _cpus(near),
        severity="info",
        **fix(machine, NicSetting(nic.name, "channels", tuple(wanted))),
    )
    return None


def _count(values: dict[str, int]) -> str:
    return ", ".join(f"{name} {values[name]}" for name in ("combined", "rx", "tx") if values.get(name))


def _cpus(near: Fact[list[int]]) -> Evidence:
    return evidence(near.source, f"housekeeping CPUs {format_list(near.get())}")


def _near(machine: Machine, nic: Nic, hot: list[int]) -> Fact[list[int]]:
    """The housekeeping CPUs on the NIC's node; all of them where it has none, or its node is not
    known."""
    left = housekeeping_cpus(machine, hot)
    if not left.known or nic.numa_node.value in (None, -1):
        return left
    node = next((n for n in machine.numa.nodes if n.id == nic.numa_node.get()), None)
    if node is None or not node.cpus.known:
        return left
    here = frozenset(node.cpus.get()).intersection(left.get())
    return Fact(sorted(here), node.cpus.source, None) if here else left


def _uneven(verdict: Verdict, machine: Machine, nic: Nic, receive: int, send: int) -> None:
    """Drivers without combined channels (gve, tg3): "combined 0" does not mean that there are none."""
    fewer = str(min(receive, send))
    verdict.finding(
        subject(nic),
        f"{opening(nic)} has {plural(receive, 'channel')} to receive and {send} to send: queues do not come "
        "in pairs, so that a flow's packets are handled by two interrupts.",
        evidence(nic.channels.source, f"rx {receive}, tx {send}, combined 0", f"rx {fewer}, tx {fewer}"),
        severity="info" if _nic.is_slow(nic) else None,
        **fix(machine, NicSetting(nic.name, "channels", (("rx", fewer), ("tx", fewer)))),
    )


@row(
    "nic.rps",
    title="Received packets are not handed to isolated CPUs",
    symptom="Hot threads are interrupted by the softirq that another CPU's interrupt has handed over.",
    cause=(
        "Receive packet steering (rps_cpus) hands packets to CPUs by software. A mask that is written leaves "
        "out CPUs isolated at boot since Linux 5.9, but not those that were set apart later."
    ),
    severity="error",
    scope="runtime",
    risk="Housekeeping CPUs take the load.",
    cost="None.",
    sources=(
        "Linux Documentation/networking/scaling.rst (RPS)",
        "Linux net/core/net-sysfs.c, store_rps_map",
    ),
)
def rps(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    hot = hot_cpus(machine, profile)
    if hot.known and not hot.get():
        return verdict.not_applicable(f"no CPU is kept apart ({hot.source})")

    def check(verdict: Verdict, nic: Nic) -> Sequence[Fact[Any]] | None:
        return _rps(verdict, machine, nic, hot)

    return _nic.judge(verdict, machine, check)


def _rps(verdict: Verdict, machine: Machine, nic: Nic, hot: Fact[list[int]]) -> Sequence[Fact[Any]] | None:
    steered = nic.rps_cpus
    if steered.absent:
        verdict.not_applicable("this kernel was built without receive packet steering (CONFIG_RPS)")
        return None
    if not steered.known:
        return [steered]
    if not steered.get():
        verdict.ok(evidence(steered.source, f"{nic.name}: off on all queues"))
        return None
    if not hot.known:
        return [hot]
    apart = frozenset(hot.get())
    wrong = {queue: cpus for queue, cpus in steered.get().items() if apart.intersection(cpus)}
    if not wrong:
        verdict.ok(evidence(steered.source, f"{nic.name}: on housekeeping CPUs only"))
        return None
    reached = sorted({c for cpus in wrong.values() for c in cpus if c in apart})
    items: list[Evidence] = []
    changes = []
    for queue, cpus in wrong.items():
        path = f"{steered.source}/{queue}/rps_cpus"
        mask = format_mask([c for c in cpus if c not in apart])
        changes.append(SysfsAttribute(path, mask, persist="udev"))
        if len(items) < 4:
            items.append(evidence(path, format_mask(cpus), mask))
    verdict.finding(
        subject(nic),
        f"{plural(len(wrong), 'queue')} of {call(nic)} may hand packets to the isolated {cpus_of(reached)}.",
        *items,
        evidence(hot.source, f"isolated: {format_list(hot.get())}"),
        **fix(machine, *changes),
    )
    return None


# -- offloads ---------------------------------------------------------------------------------


@row(
    "nic.offloads",
    title="The NIC does not merge received packets",
    symptom="Packets come late and several at once; time stamps and sizes are those of the merged one.",
    cause="Large receive offload keeps a packet back to merge it with those that follow it.",
    severity="warning",
    scope="runtime",
    risk="None; forwarding and bridging even need it off.",
    cost="CPU time of bulk TCP streams.",
    sources=(
        "Linux Documentation/networking/netdev-features.rst (LRO)",
        f"{ETHTOOL} -k, -K",
    ),
)
def offloads(machine: Machine, profile: Profile) -> Verdict:
    """GRO is left alone: it merges what one round of polling has found and waits for nothing."""
    verdict = Verdict()
    if profile.nic.lro:
        return verdict.not_applicable("the profile lets NICs merge packets (nic.lro)")

    def check(verdict: Verdict, nic: Nic) -> Sequence[Fact[Any]] | None:
        return _offloads(verdict, machine, nic)

    return _nic.judge(verdict, machine, check)


def _offloads(verdict: Verdict, machine: Machine, nic: Nic) -> Sequence[Fact[Any]] | None:
    if nic.features.absent:
        verdict.not_applicable("the driver has no offloads")
        return None
    if not nic.features.known:
        return [nic.features]
    if not nic.features.get().get("rx-lro"):
        verdict.ok(evidence(nic.features.source, f"{nic.name}: rx-lro off"))
        return None
    if nic.changeable_features.known and "rx-lro" not in nic.changeable_features.get():
        mend: dict[str, Any] = {
            "advice": f"Look for an option of the driver of {call(nic)}: LRO is fixed here."
        }
    else:
        mend = fix(machine, NicSetting(nic.name, "features", (("rx-lro", "off"),)))
    verdict.finding(
        subject(nic),
        f"{opening(nic)} merges received packets in hardware (LRO).",
        evidence(nic.features.source, "rx-lro on", "rx-lro off"),
        **mend,
    )
    return None


@row(
    "nic.pause",
    title="Nobody stops this machine from sending",
    symptom="Orders leave late while the machine looks idle.",
    cause="Each pause frame of the link partner holds all traffic back, for up to 3.4 ms at 10 Gb/s.",
    severity="warning",
    scope="runtime",
    risk="The link may be reset. The switch drops what it has no room for; lossless fabrics (RDMA) need it.",
    cost="Lost packets where the switch is congested.",
    sources=(
        "IEEE 802.3, annex 31B: PAUSE, in units of 512 bit times",
        f"{ETHTOOL} -a, -A",
        f"{NETLINK} (PAUSE_GET)",
    ),
)
def pause(machine: Machine, profile: Profile) -> Verdict:
    """Flow control that is on and was never used has cost nothing."""
    verdict = Verdict()
    if profile.nic.pause:
        return verdict.not_applicable("the profile lets link partners stop NICs (nic.pause)")

    def check(verdict: Verdict, nic: Nic) -> Sequence[Fact[Any]] | None:
        return _pause(verdict, machine, nic)

    return _nic.judge(verdict, machine, check)


# Pause frames received, under the names that drivers give them.
_PAUSED = (
    "rx_flow_control_xoff",
    "rx_xoff_pause_rcvd",
    "rx_pause_ctrl_phy",
    "rx_pause_frames",
    "rx_pause",
    "port.link_xoff_rx",
    "link_xoff_rx.nic",
)


_FEW_PAUSES = 100


def _pause(verdict: Verdict, machine: Machine, nic: Nic) -> Sequence[Fact[Any]] | None:
    if nic.pause.absent:
        verdict.not_applicable("the driver has no flow control")
        return None
    received = _paused(nic)
    if received.value == 0:
        verdict.ok(evidence(received.source, f"{nic.name}: no pause frame received"))
    elif received.known:
        mend = fix(machine, NicSetting(nic.name, "pause", (("autoneg", "off"), ("rx", "off"), ("tx", "off"))))
        if not nic.pause.known:
            mend = {"advice": f"See with ethtool -a {nic.name} whether flow control is on, and turn it off."}
        elif not nic.pause.get().get("rx"):
            verdict.ok(
                evidence(received.source, f"{nic.name}: {received.get():,} pause frames, and it heeds none")
            )
            return None
        verdict.finding(
            subject(nic),
            f"The link partner has stopped {call(nic)} from sending with {received.get():,} pause frames.",
            evidence(received.source, f"{received.get():,} pause frames received", "0"),
            *([evidence(nic.pause.source, nic.pause.get(), "rx no")] if nic.pause.known else []),
            severity="info" if received.get() < _FEW_PAUSES else None,
            **mend,
        )
    elif nic.pause.known and nic.pause.get().get("rx") is False:
        verdict.ok(evidence(nic.pause.source, f"{nic.name}: rx off"))
    elif nic.pause.known and received.absent:
        verdict.not_applicable(f"flow control of {nic.name} is on, and its driver tells no pause frames")
    else:
        return [received if nic.pause.known else nic.pause]
    return None


def _paused(nic: Nic) -> Fact[int]:
    if nic.pause_frames.known and "rx" in nic.pause_frames.get():
        return nic.pause_frames.map(lambda frames: frames["rx"])
    own = nic.driver_statistics.map(lambda values: [values[n] for n in _PAUSED if n in values])
    if own.value:
        return own.map(max)
    return Fact(None, nic.pause_frames.source, nic.pause_frames.gap or "absent", nic.pause_frames.detail)


# -- polling ----------------------------------------------------------------------------------


@row(
    "nic.busy-poll",
    title="Busy polling as the profile wants it",
    symptom="A thread that waits for a packet sleeps and is woken, instead of looking at the queue itself.",
    cause="net.core.busy_read is the default of SO_BUSY_POLL; select and poll also need net.core.busy_poll.",
    severity="info",
    scope="runtime",
    risk="Every socket polls, also those of daemons.",
    cost="Power and CPU time: a waiting thread is busy.",
    sources=(f"{_SYSCTL} (busy_read, busy_poll)", f"{_NAPI} (busy polling)"),
)
def busy_poll(machine: Machine, profile: Profile) -> Verdict:
    """The kernel's documentation prefers SO_BUSY_POLL on the sockets that need it to the sysctls."""
    verdict = Verdict()
    read, poll = (sysctl_number(machine, f"net.core.{name}") for name in ("busy_read", "busy_poll"))
    if read.absent or poll.absent:
        return verdict.not_applicable("this kernel or network namespace has no busy polling sysctls")
    unread = [fact for fact in (read, poll) if not fact.known]
    if unread:
        return verdict.unknown("sysctl:net.core.busy_read", *unread)
    wanted = profile.nic.busy_poll_us
    if read.get() < wanted or poll.get() < wanted:
        return verdict.finding(
            "sysctl:net.core.busy_read",
            f"Sockets poll for {read.get()} us, select for {poll.get()} us; the profile wants {wanted} us.",
            fact_evidence(read, str(wanted)),
            fact_evidence(poll, str(wanted)),
            **fix(
                machine,
                SysctlChange("net.core.busy_read", str(max(wanted, read.get()))),
                SysctlChange("net.core.busy_poll", str(max(wanted, poll.get()))),
            ),
        )
    if poll.get() and not read.get():
        return verdict.finding(
            "sysctl:net.core.busy_poll",
            "net.core.busy_poll alone polls nothing: only sockets with SO_BUSY_POLL are polled, and "
            "net.core.busy_read sets that for none.",
            fact_evidence(poll),
            fact_evidence(read, str(poll.get())),
            **fix(machine, SysctlChange("net.core.busy_read", str(poll.get()))),
        )
    why = "" if read.get() else "sockets choose for themselves (SO_BUSY_POLL)"
    return verdict.ok(fact_evidence(read), fact_evidence(poll), reason=why)


@row(
    "nic.xdp-support",
    title="AF_XDP without copies where programs need it",
    symptom="AF_XDP sockets work, and are no faster than others: bind() falls back to copies silently.",
    cause="The driver has no zero-copy mode, no XDP at all, or the kernel was built without AF_XDP sockets.",
    severity="warning",
    scope="hands",
    risk="None.",
    cost="Another NIC.",
    sources=(
        "Linux Documentation/netlink/specs/netdev.yaml (xdp-features)",
        "Linux Documentation/networking/af_xdp.rst (XDP_ZEROCOPY)",
    ),
)
def xdp_support(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    config = machine.kernel.config
    built = config.get().get("CONFIG_XDP_SOCKETS", "n") if config.known else ""
    if built == "n":
        if not profile.nic.af_xdp:
            return verdict.not_applicable(
                "this kernel was built without AF_XDP sockets, and nobody asks for them"
            )
        return verdict.finding(
            "kernel",
            "This kernel was built without AF_XDP sockets.",
            evidence(config.source, "CONFIG_XDP_SOCKETS n", "y"),
            advice="Boot a kernel with CONFIG_XDP_SOCKETS=y.",
        )

    def check(verdict: Verdict, nic: Nic) -> Sequence[Fact[Any]] | None:
        return _xdp(verdict, profile, nic)

    return _nic.judge(verdict, machine, check)


def _xdp(verdict: Verdict, profile: Profile, nic: Nic) -> Sequence[Fact[Any]] | None:
    offered = nic.xdp_features
    if offered.absent:
        verdict.not_applicable("this kernel does not say what its drivers offer to XDP (before 6.3)")
        return None
    if not offered.known:
        return [offered]
    if "xsk-zerocopy" in offered.get():
        verdict.ok(fact_evidence(offered), reason=f"the driver of {nic.name} offers AF_XDP without copies")
    elif profile.nic.af_xdp:
        verdict.finding(
            subject(nic),
            f"The driver of {call(nic)} cannot do AF_XDP without copies.",
            fact_evidence(offered, "xsk-zerocopy"),
            advice="Use a NIC whose driver can (ice, i40e, ixgbe, igc, mlx5), or another way than AF_XDP.",
        )
    else:
        what = "no XDP" if "basic" not in offered.get() else "XDP, and AF_XDP with copies"
        verdict.ok(fact_evidence(offered), reason=f"the driver of {nic.name} offers {what}")
    return None
