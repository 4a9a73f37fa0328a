"""CPUs that should be alone and are not: what the boot arguments make of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.changes import CpusetPartition, KernelArguments
from hwtune.diagnosis import Verdict, evidence, fact_evidence
from hwtune.diagnosis.row import row
from hwtune.fact import INVALID
from hwtune.model.intent import (
    BOOT_CPU,
    existing_cpus,
    hot_cpus,
    housekeeping_cpus,
    named_cpus,
    repaired,
    requested_isolated,
    requested_nohz_full,
    split_cores,
)
from hwtune.remediations._isolation import (
    ISOLATED,
    ISOLATION_C,
    PARAMETERS,
    as_given,
    asked_of_scheduler,
    asked_of_tick,
    cpus_of,
    hot_or_note,
    is_x86,
    isolating_arguments,
    isolcpus_given,
    listed,
    out_of_scheduler,
    wanted,
    why_others,
    with_arguments,
    without_offload_support,
    without_tick_support,
)
from hwtune.text.cpulist import format_list

if TYPE_CHECKING:
    from hwtune.diagnosis import Evidence
    from hwtune.model import Machine
    from hwtune.profile import Profile

_COST = "The isolated CPUs do nothing but what is pinned to them."
_RISK = "What is not pinned has fewer CPUs."


@row(
    "isolation.isolcpus",
    title="CPUs for hot threads are kept out of the scheduler's hands",
    symptom="Other tasks run on the CPUs of hot threads; a wake-up waits for its turn.",
    cause=(
        "Without isolcpus= or an isolated cpuset partition the load balancer moves any task to any CPU. "
        "An isolcpus= that the kernel cannot read is dropped as a whole, with one line in its log."
    ),
    severity="error",
    scope="boot",
    risk=_RISK,
    cost=_COST,
    sources=(f"{PARAMETERS} (isolcpus)", ISOLATION_C, "Documentation/admin-guide/cgroup-v2.rst (cpuset)"),
)
def isolcpus(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    if requested_isolated(machine).gap == INVALID:
        return _unreadable(verdict, machine, profile)
    fact = hot_cpus(machine, profile)
    if fact.value == [] and profile.isolation.required:
        return verdict.finding(
            "kernel",
            "No CPU is kept for hot threads, and the profile asks for some.",
            evidence(fact.source, "none", "some CPUs"),
            advice="Choose CPUs and name them with --set isolation.cpus=LIST.",
        )
    named = named_cpus(machine, profile)
    if named.known:
        _nonexistent(verdict, machine, named.get())
    hot = hot_or_note(verdict, machine, profile)
    if not hot:
        return verdict
    _nothing_left(verdict, machine, hot)
    return _balanced(verdict, machine, profile, hot)


def _unreadable(verdict: Verdict, machine: Machine, profile: Profile) -> Verdict:
    hot = hot_cpus(machine, profile)
    cpus = repaired(machine, profile, hot.get()) if hot.known else []
    return verdict.finding(
        "karg:isolcpus",
        "The kernel cannot read isolcpus= and drops it as a whole.",
        *as_given(machine, "isolcpus", "[flag,...]<CPU list>"),
        changes=with_arguments(machine, cpus, "isolcpus"),
        advice="" if cpus else "Correct the CPU list of isolcpus= in the boot loader's configuration.",
    )


def _nonexistent(verdict: Verdict, machine: Machine, named: list[int]) -> None:
    exist = existing_cpus(machine)
    if not exist.known:
        return
    strange = sorted(set(named) - set(exist.get()))
    given = machine.kernel.has_argument("isolcpus") or machine.kernel.has_argument("nohz_full")
    dropped = "; newer kernels drop an argument with such a list as a whole" if given else ""
    if strange:
        verdict.finding(
            f"cpu:{format_list(strange)}",
            f"{cpus_of(strange)} {'is' if len(strange) == 1 else 'are'} to be kept apart, and this machine "
            f"has none of that number{dropped}.",
            fact_evidence(exist),
            *as_given(machine, "isolcpus"),
            advice="Name only CPUs that exist, or use N for the last one.",
            severity="warning",
        )


def _nothing_left(verdict: Verdict, machine: Machine, hot: list[int]) -> None:
    left = housekeeping_cpus(machine, hot)
    if left.known and machine.cpus.online.get() and not left.get():
        verdict.finding(
            f"cpu:{format_list(hot)}",
            "Every online CPU is to be kept apart: none is left for everything else, and the kernel takes "
            "one of them back for that.",
            fact_evidence(machine.cpus.online, "a housekeeping CPU besides"),
            *as_given(machine, "isolcpus"),
            advice="Leave at least one whole core to housekeeping.",
        )


def _balanced(verdict: Verdict, machine: Machine, profile: Profile, hot: list[int]) -> Verdict:
    """Whether the load balancer leaves the hot CPUs alone."""
    isolated = machine.cpus.isolated
    alone = out_of_scheduler(machine)
    missing = sorted(set(hot) - set(alone.get()))
    named = asked_of_scheduler(machine)
    given = machine.kernel.has_argument("isolcpus")
    if missing and isolated.known and set(missing) & set(named):
        return verdict.finding(
            f"cpu:{format_list(missing)}",
            "isolcpus= names these CPUs and the kernel has not isolated them: it dropped the argument.",
            evidence(isolated.source, format_list(isolated.get()) or "none", format_list(named)),
            *as_given(machine, "isolcpus"),
            advice='Read the lines with "Housekeeping:" and "isolcpus:" in the kernel log of this boot.',
        )
    if missing and given and not named and profile.isolation.cpus == "auto":
        return verdict.not_applicable("isolcpus= is given without the domain flag: see isolation.domain-flag")
    if missing:
        return _not_isolated(verdict, machine, profile, hot, missing)
    if not isolated.known and not set(hot) <= set(_partitioned(machine)):
        # The command line asks for it. Whether the kernel took it stands in the file that was not read.
        return verdict.unknown(f"cpu:{format_list(hot)}", isolated)
    return verdict.ok(fact_evidence(alone))


def _partitioned(machine: Machine) -> list[int]:
    partitions = machine.cpus.partitions
    return [c for p in partitions.get() if p.state == "isolated" for c in p.cpus] if partitions.known else []


def _not_isolated(
    verdict: Verdict, machine: Machine, profile: Profile, hot: list[int], missing: list[int]
) -> Verdict:
    cpus = repaired(machine, profile, hot)
    if profile.isolation.cpus == "auto":
        message = (
            "nohz_full= names these CPUs, but nothing keeps other tasks off them, and a second task on "
            "one brings its tick back."
        )
    else:
        message = "The profile means these CPUs for hot threads, and the scheduler puts any task on them."
    isolated = machine.cpus.isolated
    given = as_given(machine, "isolcpus") or [evidence(machine.kernel.arguments.source, "no isolcpus=")]
    return verdict.finding(
        f"cpu:{format_list(missing)}",
        message + why_others(machine, profile, hot),
        evidence(
            isolated.source if isolated.known else ISOLATED,
            (format_list(isolated.get()) or "none") if isolated.known else "not read",
            format_list(cpus or hot),
        ),
        *given,
        changes=_taking_out(machine, profile, cpus),
        advice="" if cpus else "Choose CPUs other than the boot CPU, and leave some to housekeeping.",
    )


# Services with Slice=hot.slice run on the partition's CPUs.
_PARTITION = "hot"


def _taking_out(
    machine: Machine, profile: Profile, cpus: list[int]
) -> list[KernelArguments] | list[CpusetPartition]:
    """The change that takes these CPUs out of the scheduler's hands, in the way that the profile wants."""
    if profile.isolation.method == "isolcpus":
        return with_arguments(machine, cpus, "isolcpus")
    partitions = machine.cpus.partitions.get() if machine.cpus.partitions.known else []
    own = {c for p in partitions if p.path.endswith(f"/{_PARTITION}.slice") for c in p.cpus}
    # what another partition or isolcpus= has taken out already needs none
    left = tuple(c for c in cpus if c in own or c not in out_of_scheduler(machine).get())
    return [CpusetPartition(_PARTITION, left)] if left else []


@row(
    "isolation.domain-flag",
    title="isolcpus= with flags names the flag domain too",
    symptom="CPUs that isolcpus= names still get tasks from the load balancer.",
    cause=(
        "isolcpus= means the scheduler's domains only as long as it has no flag at all. With any flag, "
        "managed_irq for one, domain must be named as well."
    ),
    severity="error",
    scope="boot",
    risk=_RISK,
    cost=_COST,
    sources=(f"{PARAMETERS} (isolcpus)", f"{ISOLATION_C}, housekeeping_isolcpus_setup()"),
)
def domain_flag(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    arguments = machine.kernel.arguments
    if not arguments.known:
        return verdict.unknown("karg:isolcpus", arguments)
    if not machine.kernel.has_argument("isolcpus"):
        return verdict.not_applicable("isolcpus= is not given")
    given = isolcpus_given(machine)
    if not given:
        return verdict.not_applicable("isolcpus= cannot be read: see isolation.isolcpus")
    alone = out_of_scheduler(machine).get()
    left = sorted({c for i in given if not i.domain for c in i.cpus} - set(alone))
    if not left:
        return verdict.ok(*as_given(machine, "isolcpus"))
    hot = hot_cpus(machine, profile)
    named = hot.get() if hot.known and hot.get() else left
    cpus = repaired(machine, profile, named) or left
    return verdict.finding(
        f"cpu:{format_list(left)}",
        'isolcpus= names a flag but not "domain", so the scheduler still uses these CPUs.'
        + why_others(machine, profile, named),
        *as_given(machine, "isolcpus", wanted(machine, "isolcpus", cpus)),
        changes=with_arguments(machine, cpus, "isolcpus"),
    )


@row(
    "isolation.nohz-full",
    title="The tick stops on CPUs for hot threads",
    symptom="A short pause 100 to 1000 times a second (CONFIG_HZ) on an isolated CPU.",
    cause=(
        "isolcpus= does not stop the scheduler's tick; nohz_full= does while one task alone runs on the "
        "CPU, and keeps kernel threads, unbound work and RCU callbacks away."
    ),
    severity="error",
    scope="boot",
    risk="Entering and leaving the kernel takes longer on these CPUs (context tracking).",
    cost="System calls of the tickless CPUs get slower; one tick a second is left to a housekeeping CPU.",
    sources=(f"{PARAMETERS} (nohz_full)", "Documentation/timers/no_hz.rst", ISOLATION_C),
)
def nohz_full(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    if requested_nohz_full(machine).gap == INVALID:
        return verdict.finding(
            "karg:nohz_full",
            "The kernel cannot read nohz_full= and drops it.",
            *as_given(machine, "nohz_full", "a CPU list"),
            advice="Correct the CPU list of nohz_full= in the boot loader's configuration.",
        )
    hot = hot_or_note(verdict, machine, profile)
    if not hot:
        return verdict
    asked = asked_of_tick(machine)
    unsupported = without_tick_support(machine)
    if unsupported:
        return _no_support(verdict, machine, hot, asked, unsupported)
    in_force = machine.cpus.nohz_full
    if not in_force.known and not machine.kernel.arguments.known:
        return verdict.unknown(f"cpu:{format_list(hot)}", in_force, machine.kernel.arguments)
    tickless = set(in_force.get() if in_force.known else asked)
    # The boot CPU never is (isolation.boot-cpu says so).
    ticking = sorted(set(hot) - tickless - {BOOT_CPU})
    if ticking:
        return _ticking(verdict, machine, profile, hot, ticking)
    if not in_force.known and asked:
        # The command line asks for it. Whether the kernel took it stands in the file that was not read.
        return verdict.unknown(f"cpu:{format_list(hot)}", in_force)
    return verdict.ok(fact_evidence(in_force))


def _no_support(
    verdict: Verdict, machine: Machine, hot: list[int], asked: list[int], shown: list[Evidence]
) -> Verdict:
    needs = "CONFIG_NO_HZ_FULL=y"
    if without_offload_support(machine):
        needs += " and CONFIG_RCU_NOCB_CPU=y"
    if asked:
        subject = "karg:nohz_full"
        message = "nohz_full= has no effect: this kernel was built without CONFIG_NO_HZ_FULL."
    else:
        subject = f"cpu:{format_list(hot)}"
        message = f"The tick runs on {cpus_of(hot)}, and this kernel was built without the means to stop it."
    return verdict.finding(
        subject, message, *as_given(machine, "nohz_full"), *shown, advice=f"Boot a kernel built with {needs}."
    )


def _ticking(
    verdict: Verdict, machine: Machine, profile: Profile, hot: list[int], ticking: list[int]
) -> Verdict:
    cpus = repaired(machine, profile, hot)
    config = machine.kernel.config
    hz = config.get().get("CONFIG_HZ") if config.known else None
    rate = f" {hz} times a second" if hz else ""
    in_force = machine.cpus.nohz_full
    items = as_given(machine, "nohz_full")
    if not items and machine.kernel.arguments.known:
        items = [
            evidence(machine.kernel.arguments.source, "no nohz_full=", wanted(machine, "nohz_full", cpus))
        ]
    if in_force.known:
        items.append(evidence(in_force.source, format_list(in_force.get()) or "none", format_list(cpus)))
    return verdict.finding(
        f"cpu:{format_list(ticking)}",
        f"The tick interrupts what runs on {cpus_of(ticking)}{rate}." + why_others(machine, profile, hot),
        *items,
        changes=with_arguments(machine, cpus, "nohz_full"),
        advice="" if cpus else "Choose CPUs other than the boot CPU, and leave some to housekeeping.",
    )


@row(
    "isolation.boot-cpu",
    title="The boot CPU is left to housekeeping",
    symptom="The hot thread on CPU 0 sees a tick and interrupts that no other isolated CPU sees.",
    cause=(
        "The CPU that booted keeps the time. The kernel takes it out of nohz_full again, and much of the "
        "platform's work (legacy interrupts, suspend, hotplug) happens there."
    ),
    severity="error",
    scope="boot",
    risk=_RISK,
    cost="One core fewer for hot threads.",
    sources=("kernel/time/tick-sched.c, tick_nohz_init()", f"{PARAMETERS} (nohz_full)"),
)
def boot_cpu(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    hot = hot_cpus(machine, profile)
    asked = asked_of_tick(machine)
    if not hot.known and not asked:
        return verdict.unknown(f"cpu:{BOOT_CPU}", f"which CPUs are kept apart is not known: {hot.why()}")
    apart = sorted(set(hot.get() if hot.known else []) | set(asked))
    if not apart:
        return verdict.not_applicable(f"no CPU is kept apart ({hot.source})")
    if BOOT_CPU not in apart:
        return verdict.ok(evidence(hot.source, format_list(apart)))
    cpus = repaired(machine, profile, apart)
    names = isolating_arguments(machine, apart)
    items = [item for name in names for item in as_given(machine, name, wanted(machine, name, cpus))]
    in_force = machine.cpus.nohz_full
    if in_force.known and in_force.get():
        items.append(evidence(in_force.source, in_force.get()))
    message = f"CPU {BOOT_CPU} is to be kept apart, and as the boot CPU it cannot be quiet."
    if BOOT_CPU in asked:
        message += " The kernel takes it out of nohz_full= again, as it keeps the time."
    return verdict.finding(
        f"cpu:{BOOT_CPU}",
        message,
        *(items or [evidence(hot.source, format_list(apart), f"without CPU {BOOT_CPU}")]),
        changes=with_arguments(machine, cpus, *names),
        advice="" if cpus and names else f"Take CPU {BOOT_CPU} out of the set of CPUs for hot threads.",
    )


@row(
    "isolation.smt-split",
    title="No core is shared between hot threads and housekeeping",
    symptom="A hot thread slows down while the other thread of its core is busy.",
    cause="SMT siblings share one core's execution units and caches; isolation works by logical CPU.",
    severity="error",
    scope="boot",
    risk=_RISK,
    cost="Whole cores are given to one side or the other.",
    sources=(
        "Documentation/admin-guide/cputopology.rst (thread_siblings_list)",
        "Documentation/admin-guide/cpu-isolation.rst",
    ),
)
def smt_split(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    hot = hot_or_note(verdict, machine, profile)
    if not hot:
        return verdict
    groups = machine.cpus.smt
    if not groups.known:
        return verdict.unknown(f"cpu:{format_list(hot)}", groups)
    if not groups.get():
        return verdict.not_applicable(f"no two CPUs share a core ({groups.source})")
    cores = split_cores(machine, hot)
    if not cores:
        return verdict.ok(
            evidence(groups.source, f"{len(groups.get())} cores of siblings, none of them split")
        )
    apart = set(hot)
    shared = sorted(c for core in cores for c in core if c in apart)
    others = sorted(c for core in cores for c in core if c not in apart)
    cpus = repaired(machine, profile, hot)
    names = isolating_arguments(machine, hot)
    items = [
        evidence(
            f"/sys/devices/system/cpu/cpu{core[0]}/topology/thread_siblings_list",
            core,
            "all of them isolated, or none",
        )
        for core in cores[:8]
    ]
    if len(cores) > len(items):
        items.append(evidence(groups.source, f"{len(cores)} such cores in all"))
    items.extend(item for name in names for item in as_given(machine, name, wanted(machine, name, cpus)))
    return verdict.finding(
        f"cpu:{format_list(shared)}",
        f"{cpus_of(shared)} share {_cores(cores)} with housekeeping {cpus_of(others)}.",
        *items,
        changes=with_arguments(machine, cpus, *names),
        advice="Give whole cores to one side, or take the siblings offline (cpuN/online).",
    )


def _cores(cores: list[list[int]]) -> str:
    return "a core" if len(cores) == 1 else f"{len(cores)} cores"


@row(
    "isolation.kernel-args",
    title="Boot arguments around isolation do what they are there for",
    symptom="RCU callbacks run on isolated CPUs, an argument has no effect, or hardware faults pass unseen.",
    cause=(
        "Some arguments only work with others, some have a price that recipes leave out: mce=off stops the "
        "reports of memory and cache errors along with their interrupts."
    ),
    severity="warning",
    scope="boot",
    risk="As each argument has.",
    cost="Reporting of machine checks costs an interrupt when there is one to report.",
    sources=(
        f"{PARAMETERS} (rcu_nocbs, nohz, isolcpus)",
        "Documentation/arch/x86/x86_64/boot-options.rst (mce)",
        ISOLATION_C,
    ),
)
def kernel_args(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    arguments = machine.kernel.arguments
    if not arguments.known:
        return verdict.unknown("kernel", arguments)
    _machine_checks(verdict, machine)
    hot = hot_cpus(machine, profile)
    if hot.known and hot.get():
        _callbacks(verdict, machine, profile, hot.get())
        _flags(verdict, machine, profile, hot.get())
    _tick_arguments(verdict, machine)
    if not verdict.findings and not verdict.unknowns:
        verdict.ok(evidence(arguments.source, "no argument at odds with another"))
    return verdict


def _machine_checks(verdict: Verdict, machine: Machine) -> None:
    off = [
        a for a in machine.kernel.arguments.get() if (a.name, a.value) in (("mce", "off"), ("nomce", None))
    ]
    if off and is_x86(machine) is not False:
        verdict.finding(
            f"karg:{off[-1].name}",
            f"{off[-1].text} hides hardware errors: faults of memory and CPU go unreported.",
            evidence(machine.kernel.arguments.source, off[-1].text, "mce=ignore_ce or nothing"),
            changes=[
                KernelArguments(set=("mce=ignore_ce",), remove=("nomce",) if off[-1].name == "nomce" else ())
            ],
            severity="warning",
        )


def _callbacks(verdict: Verdict, machine: Machine, profile: Profile, hot: list[int]) -> None:
    given = as_given(machine, "rcu_nocbs")
    unsupported = without_offload_support(machine)
    if unsupported and given:
        verdict.finding(
            "karg:rcu_nocbs",
            "rcu_nocbs= has no effect: this kernel was built without CONFIG_RCU_NOCB_CPU.",
            *given,
            *unsupported,
            advice="Boot a kernel built with CONFIG_RCU_NOCB_CPU=y.",
        )
        return
    in_force = machine.cpus.nohz_full
    tickless = (
        [] if without_tick_support(machine) else in_force.get() if in_force.known else asked_of_tick(machine)
    )
    offloaded = set(listed(machine, "rcu_nocbs"))
    here = sorted(set(hot) - offloaded - set(tickless) - {BOOT_CPU})
    if not here:
        if offloaded and offloaded <= set(tickless):
            verdict.ok(*given, reason="rcu_nocbs= repeats what nohz_full= implies")
        return
    cpus = repaired(machine, profile, hot)
    verdict.finding(
        "karg:rcu_nocbs",
        f"RCU callbacks run on {cpus_of(here)}: neither rcu_nocbs= nor nohz_full= moves them away.",
        *(
            given
            or [
                evidence(machine.kernel.arguments.source, "no rcu_nocbs=", wanted(machine, "rcu_nocbs", cpus))
            ]
        ),
        changes=with_arguments(machine, cpus, "rcu_nocbs"),
        advice="" if cpus else "Choose CPUs other than the boot CPU, and leave some to housekeeping.",
    )


def _flags(verdict: Verdict, machine: Machine, profile: Profile, hot: list[int]) -> None:
    given = isolcpus_given(machine)
    strange = [flag for parsed in given for flag in parsed.unknown_flags]
    if strange:
        cpus = repaired(machine, profile, hot)
        verdict.finding(
            "karg:isolcpus",
            f"isolcpus= has what the kernel takes for unknown flags and skips: {', '.join(strange)}.",
            *as_given(machine, "isolcpus", wanted(machine, "isolcpus", cpus)),
            changes=with_arguments(machine, cpus, "isolcpus"),
            advice="" if cpus else "Correct the flags of isolcpus=: domain, managed_irq, nohz.",
        )
    lists = [sorted(parsed.cpus) for parsed in given if parsed.domain]
    if any(other != lists[0] for other in lists[1:]):
        verdict.finding(
            "karg:isolcpus",
            "isolcpus= is given more than once with different CPUs; the kernel takes the first only.",
            *as_given(machine, "isolcpus"),
            advice="Give isolcpus= once, with all CPUs.",
        )
    nohz = sorted({c for parsed in given if "nohz" in parsed.flags for c in parsed.cpus})
    full = listed(machine, "nohz_full")
    if nohz and full and nohz != full:
        verdict.finding(
            "karg:nohz_full",
            "nohz_full= and isolcpus=nohz, name different CPUs; the kernel drops the one that comes second.",
            *as_given(machine, "nohz_full"),
            *as_given(machine, "isolcpus"),
            advice="Drop the flag nohz of isolcpus=; nohz_full= says the same.",
        )


def _tick_arguments(verdict: Verdict, machine: Machine) -> None:
    off = [a for a in machine.kernel.arguments.get() if a.name == "nohz" and _is_false(a.value or "")]
    if off and asked_of_tick(machine):
        verdict.finding(
            "karg:nohz",
            f"{off[-1].text} keeps the tick on all CPUs, nohz_full= or not.",
            evidence(machine.kernel.arguments.source, off[-1].text, "no nohz="),
            *as_given(machine, "nohz_full"),
            changes=[KernelArguments(remove=("nohz",))],
            severity="error",
        )


def _is_false(value: str) -> bool:
    """As kstrtobool() of lib/kstrtox.c, which looks at no more than two letters."""
    return value[:1] in ("n", "N", "0", "f", "F") or value[:2] in ("of", "oF", "Of", "OF")
