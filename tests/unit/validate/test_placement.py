"""Where the pipeline's threads go, and what is said of it."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwtune.errors import ToolError, UsageError
from hwtune.fact import gap
from hwtune.validate import surroundings
from hwtune.validate.placement import choose, obey
from hwtune.validate.run import ROLES
from tests.support.placing import box, single, threads_apart


def cpus(placement):
    """(generator, compute, orders)"""
    return tuple(placement.cpus[role] for role in ROLES)


def told(placement):
    return " ".join(placement.given_up)


def online(machine):
    return machine.cpus.online.get()


def auto(machine):
    return choose(machine, online(machine))


# -- few CPUs ----------------------------------------------------------------------------------


def test_with_two_cpus_compute_and_orders_share_one_and_cpu_0_is_the_generators():
    placed = auto(box(single(2)))
    assert cpus(placed) == (0, 1, 1)
    assert placed.threads == [(("generator",), 0), (("compute", "orders"), 1)]
    assert "This process may use 2 CPUs: compute and orders share one thread" in told(placed)
    assert "it shares CPU 0 with generator" in told(placed)
    assert placed.rest == [0]


def test_with_one_cpu_all_share_it():
    placed = auto(box(single(1)))
    assert cpus(placed) == (0, 0, 0)
    assert placed.threads == [(ROLES, 0)]
    assert "This process may use 1 CPU: generator, compute and orders share one thread" in told(placed)


def test_with_three_cpus_the_generator_takes_cpu_0():
    placed = auto(box(single(3)))
    assert cpus(placed)[0] == 0
    assert set(cpus(placed)) == {0, 1, 2}
    assert "No CPU is left for the rest" in told(placed)


def test_with_four_cpus_the_first_is_left_to_the_system():
    placed = auto(box(single(4)))
    assert set(cpus(placed)) == {1, 2, 3}
    assert placed.rest == [0]
    assert "No CPU is left" not in told(placed)


def test_two_cores_of_two_threads_are_two_threads_of_the_pipeline():
    placed = auto(box(threads_apart(2)))  # cores {0, 2} and {1, 3}
    generator, compute, orders = cpus(placed)
    assert compute == orders
    assert {generator % 2, compute % 2} == {0, 1}, "not on one core"
    assert compute in (1, 3), "away from CPU 0's core"
    assert "The 4 CPUs that this process may use are 2 cores: compute and orders share" in told(placed)


def test_one_core_of_two_threads_has_two_siblings_and_says_what_that_costs():
    placed = auto(box([[0, 1]]))
    assert cpus(placed) == (0, 1, 1)
    assert "CPU 0-1 are SMT siblings of one core" in told(placed)


def test_no_cpu_at_all_is_an_error():
    with pytest.raises(ToolError, match="no CPU"):
        choose(box(single(2), offline=[1]), [1])


# -- isolation ---------------------------------------------------------------------------------


def test_isolated_cpus_come_first():
    placed = auto(box(single(8), isolated=[5, 6, 7]))
    assert set(cpus(placed)) == {5, 6, 7}
    assert "CPU 5-7 are isolated." in placed.why
    assert placed.given_up == []
    assert placed.rest == [0, 1, 2, 3, 4]


def test_of_two_isolated_cpus_the_path_gets_both():
    placed = auto(box(single(4), isolated=[2, 3]))
    assert cpus(placed) == (1, 2, 3)
    assert "CPU 1 is not isolated: other tasks run there too." in placed.given_up
    assert placed.rest == [0]


def test_whole_isolated_cores_before_halves_of_cores():
    # cores {n, n+6}; 1 is isolated without its sibling 7, cores 3 to 5 are whole
    placed = auto(box(threads_apart(6), isolated=[1, 3, 4, 5, 9, 10, 11]))
    assert set(cpus(placed)) == {3, 4, 5}
    assert placed.given_up == []


def test_an_isolated_half_of_a_core_is_told():
    placed = auto(box(threads_apart(4), isolated=[1, 2, 3]))
    assert set(cpus(placed)) == {1, 2, 3}
    assert "CPU 1-3 shares its core with CPU 5-7, which is open to other tasks." in placed.given_up


def test_siblings_of_the_pipeline_are_not_given_to_the_rest():
    placed = auto(box(threads_apart(8), isolated=[]))
    assert set(cpus(placed)) == {1, 2, 3}
    assert not {9, 10, 11} & set(placed.rest)
    assert 0 in placed.rest


def test_isolated_cpus_outside_the_cpuset_are_told():
    placed = choose(box(single(8), isolated=[6, 7]), range(4))
    assert set(cpus(placed)) == {1, 2, 3}
    assert "The isolated CPUs (6-7) are outside what this process may use." in placed.given_up


def test_isolation_unread_is_not_taken_for_none():
    machine = box(single(4))
    machine.cpus.isolated = gap("denied", "/sys/devices/system/cpu/isolated")
    assert "Which CPUs are isolated is not known" in told(auto(machine))
    assert "No CPU is isolated" not in told(auto(machine))


def test_siblings_unread_are_told():
    machine = box(single(4))
    machine.cpus.smt = gap("absent", "topology/thread_siblings_list")
    assert "Whether two of them share a core is not known" in told(auto(machine))


# -- nodes and caches --------------------------------------------------------------------------

TWO_NODES = {"nodes": [[0, 1, 2, 3], [4, 5, 6, 7]], "caches": [[0, 1, 2, 3], [4, 5, 6, 7]]}


def test_the_gpus_node():
    placed = auto(box(single(8), **TWO_NODES, gpu_node=1, nics={"eth0": 0}))
    assert set(cpus(placed)) == {4, 5, 6}
    assert "All are on node 1, beside GPU 0000:65:00.0." in placed.why
    assert "They are on node 1, eth0 on node 0." in placed.given_up


def test_the_nics_node_where_there_is_no_gpu():
    placed = auto(box(single(8), **TWO_NODES, nics={"eth0": 1}))
    assert set(cpus(placed)) == {4, 5, 6}
    assert "All are on node 1, beside eth0." in placed.why


def test_isolated_cpus_before_the_gpus_node_and_it_is_told():
    placed = auto(box(single(8), **TWO_NODES, isolated=[1, 2, 3], gpu_node=1))
    assert set(cpus(placed)) == {1, 2, 3}
    assert "They are on node 0, GPU 0000:65:00.0 on node 1." in placed.given_up


def test_neighbours_share_a_cache():
    # two cores a cache, as on some EPYC parts: no three can share one, but compute shares with one
    placed = auto(box(single(8), caches=[[0, 1], [2, 3], [4, 5], [6, 7]]))
    generator, compute, orders = cpus(placed)
    assert compute // 2 in (generator // 2, orders // 2)
    assert 0 not in cpus(placed)
    assert "share no cache" in told(placed)


def test_a_cache_that_holds_all_three_is_found():
    placed = auto(box(single(8), caches=[[0, 1], [2, 3], [4, 5, 6, 7]]))
    assert set(cpus(placed)) == {4, 5, 6}
    assert "They share the last level of cache." in placed.why


def test_subnuma_clusters_are_nodes():
    nodes = [[0, 1, 8, 9], [2, 3, 10, 11], [4, 5, 12, 13], [6, 7, 14, 15]]
    cache = [[0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]]
    # cores {n, n+8}: two cores a cluster, so that three threads cross to the next, within one cache
    placed = auto(box(threads_apart(8), nodes=nodes, caches=cache, gpu_node=2))
    generator, compute, orders = cpus(placed)
    assert compute in (4, 5) and len({generator, orders} & {4, 5}) == 1
    assert len({c % 8 for c in cpus(placed)}) == 3
    assert all(c % 8 >= 4 for c in cpus(placed)), "the third stays on the same package"
    assert "They are on nodes" in told(placed)


def test_performance_cores_before_efficient_ones():
    # 0-3: two performance cores of two threads; 4-7 efficient
    placed = auto(box([[0, 1], [2, 3], [4], [5], [6], [7]], efficient=[4, 5, 6, 7]))
    generator, compute, orders = cpus(placed)
    assert compute in (2, 3), "the performance core that is not CPU 0's"
    assert "is an efficient core" in told(placed)
    assert len({c // 2 if c < 4 else c for c in (generator, compute, orders)}) == 3


# -- affinity and cpusets ----------------------------------------------------------------------


def test_an_affinity_that_somebody_set_is_obeyed():
    placed = choose(box(single(8)), range(8), own=[5, 6])
    assert cpus(placed) == (5, 6, 6)
    assert "Only CPU 5-6 is in this process's affinity." in placed.why


def test_the_affinity_that_the_kernel_gives_where_cpus_are_isolated_is_no_wish():
    placed = choose(box(single(8), isolated=[5, 6, 7]), range(8), own=range(5))
    assert set(cpus(placed)) == {5, 6, 7}
    assert "affinity" not in " ".join(placed.why)


def test_the_rest_stays_in_the_affinity():
    assert choose(box(single(8)), range(8), own=[4, 5, 6, 7]).rest == [7]


def test_the_kernel_is_asked_by_trying_and_the_affinity_put_back():
    before = os.sched_getaffinity(0)
    assert surroundings.settable(sorted(before)) == before
    assert os.sched_getaffinity(0) == before
    assert surroundings.settable([60_000]) == before, "none of them: what it has is what it can have"
    assert os.sched_getaffinity(0) == before


# -- --cpus ------------------------------------------------------------------------------------


def test_named_cpus_are_taken_in_their_order():
    machine = box(single(8))
    assert cpus(obey(machine, "2,4,6", range(8))) == (2, 4, 6)
    assert cpus(obey(machine, " 6, 4", range(8))) == (6, 4, 4)
    assert cpus(obey(machine, "3", range(8))) == (3, 3, 3)
    assert cpus(obey(machine, "4-6", range(8))) == (4, 5, 6)
    assert obey(machine, "2,4,6", range(8)).requested
    assert obey(machine, "2,4,6", range(8)).rest == [0, 1, 3, 5, 7]


def test_named_cpus_that_are_poor_are_obeyed_and_told():
    placed = obey(box(threads_apart(4), **TWO_NODES), "0,4,1", range(8))
    assert cpus(placed) == (0, 4, 1)
    assert "CPU 0,4 are SMT siblings of one core" in told(placed)
    assert "They are on nodes 0-1" in told(placed)
    assert "CPU 0, to which most interrupts" in told(placed)
    fewer = obey(box(single(8)), "2,3", range(8))
    assert "Two CPUs are named: compute and orders share one thread" in told(fewer)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2,2", "names CPU 2 twice"),
        ("1,2,3,4", "names 4 CPUs"),
        ("99", "there is no CPU 99 here: 0-7 are there"),
        ("7", "CPU 7 is offline"),
        ("6", "CPU 6 is outside the cpuset of this process, which has 0-5"),
        ("", "takes up to three CPU numbers"),
        ("a", "takes up to three CPU numbers"),
        ("1,", "takes up to three CPU numbers"),
        ("-1", "takes up to three CPU numbers"),
        ("3-2", "takes up to three CPU numbers"),
        ("0-65535", "takes up to three CPU numbers"),
        ("9999999999", "takes up to three CPU numbers"),
        ("²", "takes up to three CPU numbers"),
    ],
)
def test_named_cpus_are_refused_with_a_reason(text, reason):
    with pytest.raises(UsageError, match=reason):
        obey(box(single(8), offline=[7]), text, range(6))


# -- any machine -------------------------------------------------------------------------------


@st.composite
def machines(draw):
    threads = draw(st.sampled_from([1, 2]))
    count = draw(st.integers(1, 12))
    cores = threads_apart(count) if threads == 2 else single(count)
    everything = [c for core in cores for c in core]
    some = st.lists(st.sampled_from(everything), unique=True)
    split = draw(st.integers(0, count))
    parts = [[c for core in part for c in core] for part in (cores[:split], cores[split:])]
    halves = [part for part in parts if part]
    machine = box(
        cores,
        nodes=halves,
        caches=halves,
        isolated=draw(some),
        offline=[c for c in draw(some) if c != 0],
        gpu_node=draw(st.sampled_from([None, 0, 1])),
        nics=draw(st.sampled_from([None, {"eth0": 0}, {"eth0": 1}])),
    )
    return machine, draw(some)


@given(machines())
def test_on_any_machine_each_role_has_a_cpu_that_may_be_used(drawn):
    machine, allowed = drawn
    usable = set(allowed) & set(online(machine))
    if not usable:
        with pytest.raises(ToolError):
            choose(machine, allowed)
        return
    placed = choose(machine, allowed)
    chosen = cpus(placed)
    assert set(chosen) <= usable
    assert set(placed.rest) <= usable
    siblings = {cpu.id: tuple(cpu.siblings) for cpu in machine.cpus.cpus}
    cores = {siblings[c] for c in usable}
    threads = len(placed.threads)
    assert threads == (min(3, len(cores)) if len(cores) > 1 else min(2, len(usable)))
    if len(cores) >= threads:
        assert len({siblings[c] for c in chosen}) == threads, "no two on one core"
    # no choice of as many cores has more isolated CPUs
    isolated = set(machine.cpus.isolated.get())
    best = sum(any(c in isolated for c in core if c in usable) for core in cores)
    if len(cores) >= threads:
        assert sum(c in isolated for c in set(chosen)) == min(threads, best)
    assert choose(machine, allowed) == placed, "always the same"
    assert obey(machine, ",".join(str(cpu) for _, cpu in placed.threads), allowed).cpus == placed.cpus
