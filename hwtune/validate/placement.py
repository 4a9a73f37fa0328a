"""Which CPU each thread of the pipeline is pinned to, why, and what had to be given up for it."""

from __future__ import annotations

from itertools import pairwise, permutations
from typing import TYPE_CHECKING

import msgspec

from hwtune.errors import ToolError, UsageError
from hwtune.text.cpulist import MAX_CPUS, show_list
from hwtune.validate.run import ROLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hwtune.model import Machine

# Cores whose capacity is below this share of the greatest are small ones (as in the probe of CPUs).
_SMALL = 0.75
_BOOT_CPU = 0


class Placement(msgspec.Struct, frozen=True):
    """``cpus`` by role; roles with the same CPU are one thread. ``rest``: where all else of this process
    should stay. ``why`` and ``given_up``: sentences."""

    cpus: dict[str, int]
    rest: list[int]
    requested: bool
    why: list[str]
    given_up: list[str]

    @property
    def threads(self) -> list[tuple[tuple[str, ...], int]]:
        """(roles, CPU) of each thread, in the order of the way."""
        found: dict[int, tuple[str, ...]] = {}
        for role in ROLES:
            found[self.cpus[role]] = (*found.get(self.cpus[role], ()), role)
        return [(roles, cpu) for cpu, roles in found.items()]


class _Site(msgspec.Struct, frozen=True):
    """One CPU that may be used. ``core`` and ``cache``: the lowest CPU with which it shares them; -1 for a
    cache or node that is not known."""

    id: int
    core: int
    siblings: frozenset[int]
    node: int
    cache: int
    isolated: bool
    tickless: bool
    clean: bool  # no sibling is open to others
    boot: int  # 2 for CPU 0, 1 for its siblings
    small: bool


class _Wish(msgspec.Struct, frozen=True):
    """Nodes of the devices that the pipeline should be near, with their names."""

    gpus: dict[int, list[str]]
    nics: dict[int, list[str]]


def choose(machine: Machine, settable: Iterable[int], own: Iterable[int] | None = None) -> Placement:
    """The best CPUs of those on which the kernel lets this process run (``settable``). ``own``: its affinity
    as it was started; one that is neither all of them nor all that are not isolated was set by somebody, who
    is obeyed. Raises ``ToolError`` where no CPU may be used."""
    usable, limited = _usable(machine, frozenset(settable), None if own is None else frozenset(own))
    sites = _sites(machine, usable)
    if not sites:
        raise ToolError("this process may run on no CPU that is online")
    wish = _wishes(machine)
    cores = len({site.core for site in sites})
    # two threads of one core would slow each other down: fewer threads come first
    wanted = min(len(ROLES), cores) if cores > 1 else min(2, len(sites))
    anchors = {(site.node, site.cache) for site in sites}
    best = max(
        (
            _roles(chosen, wish)
            for anchor in sorted(anchors)
            if (chosen := _nearest(sites, anchor, wanted, wish))
        ),
        key=lambda chosen: _merit(chosen, wish),
    )
    reasons = [f"Only CPU {show_list(usable)} is in this process's affinity."] if limited else []
    return _told(machine, best, sites, usable, wish, requested=False, why=reasons)


def obey(machine: Machine, text: str, settable: Iterable[int], own: Iterable[int] | None = None) -> Placement:
    """The CPUs that the user names: "2,4,6" for generator, compute and orders; of two the second has compute
    and orders; one has all. Raises ``UsageError`` with the reason where they can't be had."""
    numbers = _numbers(text)
    allowed = frozenset(settable)
    _refuse(machine, numbers, allowed)
    sites = _sites(machine, allowed)
    by_id = {site.id: site for site in sites}
    usable = frozenset(by_id) if own is None else (frozenset(own) & frozenset(by_id)) | frozenset(numbers)
    return _told(
        machine, tuple(by_id[n] for n in numbers), sites, usable, _wishes(machine), requested=True, why=[]
    )


# -- what may be used ------------------------------------------------------------------------


def _usable(
    machine: Machine, settable: frozenset[int], own: frozenset[int] | None
) -> tuple[frozenset[int], bool]:
    """The kernel starts everything outside the isolated CPUs (kernel/sched/core.c, sched_init_smp), so that
    such an affinity is nobody's wish."""
    isolated = frozenset(machine.cpus.isolated.value or ())
    if own is None or own >= settable - isolated or not own & settable:
        return settable, False
    return settable & own, True


def _sites(machine: Machine, usable: frozenset[int]) -> list[_Site]:
    cpus = machine.cpus
    online = frozenset(cpus.online.get()) if cpus.online.known else usable
    isolated = frozenset(cpus.isolated.value or ())
    tickless = frozenset(cpus.nohz_full.value or ())
    caches = _last_level(machine)
    by_id = {cpu.id: cpu for cpu in cpus.cpus}
    greatest = max((cpu.capacity or 0 for cpu in cpus.cpus), default=0)
    found = []
    for number in sorted(usable & online):
        cpu = by_id.get(number)
        siblings = frozenset((cpu.siblings if cpu else None) or (number,)) & (online | {number})
        capacity = cpu.capacity if cpu else None
        found.append(
            _Site(
                id=number,
                core=min(siblings),
                siblings=siblings,
                node=cpu.node if cpu is not None and cpu.node is not None else -1,
                cache=caches.get(number, -1),
                isolated=number in isolated,
                tickless=number in tickless,
                clean=siblings <= isolated | {number},
                boot=2 if number == _BOOT_CPU else int(_BOOT_CPU in siblings),
                small=(cpu is not None and cpu.core_type == "efficient")
                or (capacity is not None and capacity < _SMALL * greatest),
            )
        )
    return found


def _last_level(machine: Machine) -> dict[int, int]:
    """CPU -> the lowest CPU with which it shares its last level of cache."""
    levels: dict[int, int] = {}
    found: dict[int, int] = {}
    for cache in machine.cpus.caches:
        for cpu in cache.cpus if cache.type != "Instruction" else ():
            if cache.level > levels.get(cpu, 0):
                levels[cpu] = cache.level
                found[cpu] = min(cache.cpus)
    return found


def _wishes(machine: Machine) -> _Wish:
    gpus: dict[int, list[str]] = {}
    nics: dict[int, list[str]] = {}
    for number, gpu in enumerate(machine.gpu.gpus):
        node = gpu.numa_node.value
        if node is not None and node >= 0:
            gpus.setdefault(node, []).append(f"GPU {gpu.address or number}")
    for nic in machine.network.nics:
        node = nic.numa_node.value
        if node is not None and node >= 0 and not nic.virtual and nic.operstate.value == "up":
            nics.setdefault(node, []).append(nic.name)
    return _Wish(gpus, nics)


# -- the choice ------------------------------------------------------------------------------


def _nearest(sites: list[_Site], anchor: tuple[int, int], count: int, wish: _Wish) -> tuple[_Site, ...]:
    """The best CPUs, those near ``anchor`` (node, cache) before equals; one a core where there are cores
    enough."""
    node, cache = anchor
    ordered = sorted(
        sites,
        key=lambda s: (
            not s.isolated,
            s.isolated and not s.clean,
            s.small,
            s.node not in wish.gpus,
            s.node not in wish.nics,
            s.node != node,
            s.boot,
            s.cache != cache,
            not s.tickless,
            s.id,
        ),
    )
    chosen: list[_Site] = []
    for site in ordered:
        if len(chosen) < count and site.core not in {c.core for c in chosen}:
            chosen.append(site)
    chosen += [s for s in ordered if s not in chosen][: count - len(chosen)]
    return tuple(chosen)


def _roles(chosen: tuple[_Site, ...], wish: _Wish) -> tuple[_Site, ...]:
    """In the best order of generator, compute, orders (or the two together, or all)."""
    return max(permutations(chosen), key=lambda order: _merit(order, wish))


def _merit(order: tuple[_Site, ...], wish: _Wish) -> tuple[float, ...]:
    """What is better, the most important first. compute does the most, then orders; what the generator
    loses shows in a stage of its own."""
    rank = (*order[1:], order[0])
    nodes = {site.node for site in order}
    return (
        len({site.core for site in order}),
        sum(site.isolated for site in order),
        *(site.isolated for site in rank),
        sum(site.clean for site in order if site.isolated),
        -sum(site.small for site in order),
        *(-site.small for site in rank),
        sum(site.node in wish.gpus for site in order),
        sum(site.node in wish.nics for site in order),
        -len(nodes),
        -sum(site.boot for site in order),
        *(-site.boot for site in rank),
        sum(a.cache == b.cache for a, b in _neighbours(order)),
        sum(site.tickless for site in order),
        -sum(site.id for site in order),
        *(-site.id for site in order),
    )


def _neighbours(order: tuple[_Site, ...]) -> list[tuple[_Site, _Site]]:
    return list(pairwise(order))


# -- what the user named ---------------------------------------------------------------------


def _numbers(text: str) -> list[int]:
    """In the order given: it says which role gets which."""
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = (piece.strip() for piece in part.partition("-"))
        ends = [first, last] if dash else [first]
        if not all(end.isascii() and end.isdecimal() and len(end) < 7 for end in ends):
            raise UsageError(f"--cpus takes up to three CPU numbers (2,4,6) or auto, not {text[:60]!r}")
        low, high = int(first), int(ends[-1])
        if high < low or high >= MAX_CPUS or high - low >= len(ROLES):
            raise UsageError(f"--cpus takes up to three CPU numbers (2,4,6) or auto, not {text[:60]!r}")
        numbers += range(low, high + 1)
    if len(numbers) > len(ROLES):
        raise UsageError(
            f"--cpus names {len(numbers)} CPUs; the pipeline has three threads (generator, compute, orders)"
        )
    return numbers


def _refuse(machine: Machine, numbers: Sequence[int], settable: frozenset[int]) -> None:
    for number in numbers:
        if numbers.count(number) > 1:
            raise UsageError(
                f"--cpus names CPU {number} twice; of two CPUs compute and orders share one, of one all do"
            )
        present = machine.cpus.present if machine.cpus.present.known else machine.cpus.possible
        if present.known and number not in present.get():
            raise UsageError(f"there is no CPU {number} here: {show_list(present.get())} are there")
        if machine.cpus.online.known and number not in machine.cpus.online.get():
            raise UsageError(f"CPU {number} is offline")
        if number not in settable:
            raise UsageError(
                f"CPU {number} is outside the cpuset of this process, which has {show_list(settable)}"
            )


# -- telling ---------------------------------------------------------------------------------


def _told(
    machine: Machine,
    order: tuple[_Site, ...],
    sites: list[_Site],
    usable: frozenset[int],
    wish: _Wish,
    requested: bool,
    why: list[str],
) -> Placement:
    roles = dict(zip(ROLES, [*order, *[order[-1]] * (len(ROLES) - len(order))], strict=True))
    rest, rest_taken = _rest(order, sites, usable)
    lost = _threads_lost(machine, order, sites, requested)
    for tell in (_isolation, _cores, _kinds, _nodes, _caches):
        good, bad = tell(machine, order, sites, wish)
        why = [*why, *good]
        lost += bad
    if rest_taken:
        lost.append(
            "No CPU is left for the rest of this process and for the system: it shares "
            f"CPU {rest[0]} with {_names(roles, rest[0])}."
        )
    elif any(site.boot == 2 for site in order):
        lost.append("CPU 0, to which most interrupts and timers of the system go, is among them.")
    return Placement({role: site.id for role, site in roles.items()}, rest, requested, why, lost)


def _names(roles: dict[str, _Site], cpu: int) -> str:
    return " and ".join(role for role, site in roles.items() if site.id == cpu)


def _rest(order: tuple[_Site, ...], sites: list[_Site], usable: frozenset[int]) -> tuple[list[int], bool]:
    """Where the rest should stay, and whether that is a CPU of the pipeline's."""
    taken = {site.id for site in order}
    near = {c for site in order for c in site.siblings}
    free = [site for site in sites if site.id in usable and site.id not in taken]
    for fits in (
        [s.id for s in free if not s.isolated and s.id not in near],
        [s.id for s in free if not s.isolated],
        [s.id for s in free],
    ):
        if fits:
            return fits, False
    return [order[0].id], True


def _threads_lost(
    machine: Machine, order: tuple[_Site, ...], sites: list[_Site], requested: bool
) -> list[str]:
    if len(order) == len(ROLES):
        return []
    what = (
        "compute and orders share one thread, so that the order queue is not crossed between CPUs"
        if len(order) == 2
        else "generator, compute and orders share one thread, so that a tick that is due waits until the one "
        "before it is through"
    )
    cores = len({site.core for site in sites})
    if requested:
        return [f"{'Two CPUs are' if len(order) == 2 else 'One CPU is'} named: {what}."]
    if len(sites) > len(order) >= cores:
        told = f"The {len(sites)} CPUs that this process may use are {_count(cores, 'core')}"
    else:
        told = f"This process may use {_count(len(sites), 'CPU')}"
    return [f"{told}: {what}."]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


_Told = tuple[list[str], list[str]]


def _isolation(machine: Machine, order: tuple[_Site, ...], sites: list[_Site], wish: _Wish) -> _Told:
    isolated = machine.cpus.isolated
    if not isolated.known:
        return [], [f"Which CPUs are isolated is not known: {isolated.why()}."]
    apart = [site for site in order if site.isolated]
    lost = []
    if not isolated.get():
        lost.append("No CPU is isolated: whatever the scheduler puts there takes time from the pipeline.")
    elif not any(site.isolated for site in sites):
        lost.append(f"The isolated CPUs ({show_list(isolated.get())}) are outside what this process may use.")
    elif len(apart) < len(order):
        others = [site.id for site in order if not site.isolated]
        lost.append(f"CPU {show_list(others)} {_are(others)} not isolated: other tasks run there too.")
    open_ = [site for site in apart if not site.clean]
    if open_:
        shared = sorted(
            {c for site in open_ for c in site.siblings - set(isolated.get())} - {s.id for s in order}
        )
        if shared:
            lost.append(
                f"CPU {show_list([s.id for s in open_])} shares its core with CPU {show_list(shared)}, which "
                "is open to other tasks."
            )
    good = []
    if apart:
        good.append(f"CPU {show_list([site.id for site in apart])} {_are(apart)} isolated.")
    return good, lost


def _are(things: Sequence[object]) -> str:
    return "is" if len(things) == 1 else "are"


def _cores(machine: Machine, order: tuple[_Site, ...], sites: list[_Site], wish: _Wish) -> _Told:
    if not machine.cpus.smt.known:
        return [], [f"Whether two of them share a core is not known: {machine.cpus.smt.why()}."]
    cores: dict[int, list[int]] = {}
    for site in order:
        cores.setdefault(site.core, []).append(site.id)
    shared = [members for members in cores.values() if len(members) > 1]
    if shared:
        return [], [
            f"CPU {show_list(members)} are SMT siblings of one core: each slows the other down."
            for members in shared
        ]
    if len(order) > 1 and machine.cpus.smt.get():
        return ["Each has a core of its own: no two are SMT siblings."], []
    return [], []


def _kinds(machine: Machine, order: tuple[_Site, ...], sites: list[_Site], wish: _Wish) -> _Told:
    if not any(site.small for site in sites) or all(site.small for site in sites):
        return [], []
    small = [site.id for site in order if site.small]
    if small:
        return [], [f"CPU {show_list(small)} is an efficient core, slower than a performance core."]
    return ["They are performance cores."], []


def _nodes(machine: Machine, order: tuple[_Site, ...], sites: list[_Site], wish: _Wish) -> _Told:
    nodes = sorted({site.node for site in order})
    good, lost = [], []
    several = len({site.node for site in sites} | set(wish.gpus) | set(wish.nics)) > 1
    if -1 in nodes:
        return [], ["The NUMA node of these CPUs is not known."] if wish.gpus or wish.nics else []
    if len(nodes) > 1:
        lost.append(f"They are on nodes {show_list(nodes)}: what one hands to the next crosses between them.")
    beside = []
    for devices in (wish.gpus, wish.nics):
        if not devices:
            continue
        names = [name for node in nodes for name in devices.get(node, ())]
        if names:
            beside += names
        else:
            told = "; ".join(f"{_some(names)} on node {node}" for node, names in sorted(devices.items()))
            lost.append(f"They are on node {show_list(nodes)}, {told}.")
    if len(nodes) == 1 and several:
        good.append(f"All are on node {nodes[0]}{', beside ' + _some(beside) if beside else ''}.")
    return good, lost


def _some(names: list[str]) -> str:
    return ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")


def _caches(machine: Machine, order: tuple[_Site, ...], sites: list[_Site], wish: _Wish) -> _Told:
    if len(order) < 2:
        return [], []
    if any(site.cache < 0 for site in order):
        return [], ["Which of them share a cache is not known."]
    apart = [(a.id, b.id) for a, b in _neighbours(order) if a.cache != b.cache]
    if apart:
        pairs = " and ".join(f"{a} and {b}" for a, b in apart)
        return [], [f"CPU {pairs} share no cache: each message goes through memory or the interconnect."]
    return ["They share the last level of cache."], []
