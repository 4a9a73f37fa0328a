"""What is read of the live machine before the pipeline starts."""

from __future__ import annotations

import os

import pytest

from hwtune.validate import surroundings
from tests.support import host, runs

V2 = {"/proc/self/cgroup": "0::/machine.slice/box.scope\n"}
TOP = "/sys/fs/cgroup"


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({f"{TOP}/machine.slice/box.scope/cpu.max": "max 100000\n"}, None),
        (
            {f"{TOP}/machine.slice/box.scope/cpu.max": "150000 100000\n"},
            (1.5, f"{TOP}/machine.slice/box.scope/cpu.max"),
        ),
        # the tightest of a group and those above it counts
        (
            {
                f"{TOP}/machine.slice/box.scope/cpu.max": "300000 100000\n",
                f"{TOP}/machine.slice/cpu.max": "20000 10000\n",
            },
            (2.0, f"{TOP}/machine.slice/cpu.max"),
        ),
        ({f"{TOP}/machine.slice/cpu.max": "garbage\n"}, None),
        ({f"{TOP}/machine.slice/cpu.max": "5 0\n"}, None),
    ],
)
def test_quota_of_a_control_group(tmp_path, files, limit):
    assert surroundings.quota(host(tmp_path, {**V2, **files}, complete=True)) == limit


def test_quota_in_a_container_whose_group_is_the_top(tmp_path):
    files = {"/proc/self/cgroup": "0::/\n", f"{TOP}/cpu.max": "50000 100000\n"}
    assert surroundings.quota(host(tmp_path, files, complete=True)) == (0.5, f"{TOP}/cpu.max")


def test_quota_of_the_first_hierarchy(tmp_path):
    folder = f"{TOP}/cpu,cpuacct/docker/abc"
    files = {
        "/proc/self/cgroup": "12:memory:/x\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n",
        f"{folder}/cpu.cfs_quota_us": "250000\n",
        f"{folder}/cpu.cfs_period_us": "100000\n",
        f"{TOP}/cpu,cpuacct/docker/cpu.cfs_quota_us": "-1\n",
        f"{TOP}/cpu,cpuacct/docker/cpu.cfs_period_us": "100000\n",
    }
    assert surroundings.quota(host(tmp_path, files, complete=True)) == (2.5, f"{folder}/cpu.cfs_quota_us")


def test_no_control_groups_at_all(tmp_path):
    assert surroundings.quota(host(tmp_path, {}, complete=True)) is None
    assert surroundings.quota(host(tmp_path, {"/proc/self/cgroup": "nonsense\n:::\n"}, complete=True)) is None


def test_a_quota_below_the_threads_is_told():
    placed = surroundings._limited(runs.placement(), (1.5, "cpu.max"))
    assert placed.given_up == [
        "This process's control group may use 1.5 CPUs (cpu.max): its 3 threads, which spin, are stopped for "
        "the rest of each period."
    ]
    assert surroundings._limited(runs.placement(), (3.0, "cpu.max")).given_up == []
    assert surroundings._limited(runs.placement(), None).given_up == []


def test_this_machine():
    placed = surroundings.place(None)
    assert set(placed.cpus.values()) <= surroundings.settable(list(range(os.cpu_count() or 1)))
    named = surroundings.place(str(max(os.sched_getaffinity(0))))
    assert named.requested and len(named.threads) == 1
