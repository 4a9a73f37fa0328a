"""The probe of CPUs, on trees with one oddity each."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest

from hwtune.fact import ABSENT, DENIED, INVALID, NOT_CAPTURED
from hwtune.host.libraries import LibraryGap, cpu_latency, cpuinfo
from hwtune.host.live import LiveHost
from hwtune.host.recorder import Recorder
from hwtune.probes import cpus as probe
from tests.support import Directory, Gap, host
from tests.support.cpus import CPU, frequency, healthy, idle, throttle, topology

if TYPE_CHECKING:
    from pathlib import Path

    from hwtune.model.cpus import Cpus


def read(tmp_path: Path, files: dict[str, Any], **more: Any) -> Cpus:
    return probe.read(host(tmp_path, files, **more))


def test_a_whole_box(tmp_path: Path) -> None:
    cpus = read(tmp_path, healthy(), libraries={("cpu_latency",): 2_000_000_000})
    assert cpus.online.get() == list(range(8))
    assert cpus.isolated.get() == [] and cpus.nohz_full.get() == []
    assert cpus.smt.get() == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert (cpus.package_count.get(), cpus.core_count.get(), cpus.threads_per_core.get()) == (2, 4, 2)
    assert [(c.package, c.core, c.node) for c in cpus.cpus[:4]] == [
        (0, 0, 0),
        (0, 1, 0),
        (1, 0, 1),
        (1, 1, 1),
    ]
    assert cpus.model_name.get() == "Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz"
    assert (cpus.family.get(), cpus.model.get(), cpus.microcode.get()) == (6, 85, "0x5003707")
    assert len(cpus.policies) == 8 and cpus.policies[3].cpus == [3]
    (group,) = cpus.idle_groups
    assert group.cpus == list(range(8))
    assert [(s.name, s.latency_us, s.disabled) for s in group.states] == [
        ("POLL", 0, False), ("C1", 2, False), ("C1E", 10, False), ("C6", 133, True),
    ]  # fmt: skip
    assert cpus.latency_request_us.get() == 2_000_000_000
    assert cpus.latency_request_us.source == "/dev/cpu_dma_latency"
    assert cpus.resume_latency == [(list(range(8)), "0")]


def test_nothing_is_known_of_an_empty_tree(tmp_path: Path) -> None:
    cpus = read(tmp_path, {"/proc/version": "Linux version 6.1\n"})
    for fact in (
        cpus.online, cpus.smt, cpus.package_count, cpus.model_name, cpus.policies_listed, cpus.idle_listed,
        cpus.throttles_listed, cpus.latency_request_us, cpus.turbo, cpus.hybrid, cpus.vulnerabilities_listed,
    ):  # fmt: skip
        assert fact.gap == NOT_CAPTURED


def test_masks_where_a_kernel_has_no_lists(tmp_path: Path) -> None:
    files = {
        f"{CPU}/online": "0-1,32-33\n",
        **{f"{CPU}/cpu{n}/topology/physical_package_id": "0\n" for n in (0, 1, 32, 33)},
        **{f"{CPU}/cpu{n}/topology/thread_siblings": "00000001,00000001\n" for n in (0, 32)},
        **{f"{CPU}/cpu{n}/topology/thread_siblings": "00000002,00000002\n" for n in (1, 33)},
        **{f"{CPU}/cpu{n}/topology/core_siblings": "00000003,00000003\n" for n in (0, 1, 32, 33)},
    }
    cpus = read(tmp_path, files)
    assert cpus.smt.get() == [[0, 32], [1, 33]]
    assert (cpus.package_count.get(), cpus.core_count.get()) == (1, 2)
    assert cpus.cpus[0].core is None


def test_a_nul_behind_a_list_is_borne(tmp_path: Path) -> None:
    files = topology()
    files[f"{CPU}/cpu0/topology/thread_siblings_list"] = "0,4\n\0"
    assert read(tmp_path, files).smt.get()[0] == [0, 4]


def test_lists_may_name_cpus_that_are_not_there(tmp_path: Path) -> None:
    files = topology()
    files[f"{CPU}/isolated"] = "1,2-7,900\n"
    files[f"{CPU}/cpu0/topology/thread_siblings_list"] = "0,4,512\n"
    cpus = read(tmp_path, files)
    assert cpus.isolated.get() == [1, 2, 3, 4, 5, 6, 7, 900]
    assert cpus.cpus[0].siblings == [0, 4]


def test_a_set_without_its_own_cpu_is_not_believed(tmp_path: Path) -> None:
    files = topology()
    files[f"{CPU}/cpu0/topology/thread_siblings_list"] = "2-3\n"
    files[f"{CPU}/cpu4/topology/thread_siblings_list"] = "4\n"
    cpus = read(tmp_path, files)
    assert cpus.smt.gap == INVALID
    assert cpus.cpus[0].siblings is None
    assert cpus.cpus[1].siblings == [1, 5]


def test_online_from_each_cpu_where_the_list_is_missing(tmp_path: Path) -> None:
    files = topology()
    del files[f"{CPU}/online"]
    for name in ("thread_siblings_list", "core_siblings_list", "physical_package_id", "core_id"):
        del files[f"{CPU}/cpu7/topology/{name}"]
    files[f"{CPU}/cpu7/online"] = "0\n"
    cpus = read(tmp_path, files)
    # CPU 0-6 have a topology, as only online CPUs do; CPU 7 says itself that it is not
    assert cpus.online.get() == [0, 1, 2, 3, 4, 5, 6]
    assert cpus.online.source == f"{CPU}/cpu*/online"
    assert [c.id for c in cpus.cpus] == list(range(8))


def test_online_from_cpuinfo_where_folders_tell_nothing(tmp_path: Path) -> None:
    files = {"/proc/cpuinfo": topology()["/proc/cpuinfo"], f"{CPU}/cpu0/uevent": "", f"{CPU}/cpu9/uevent": ""}
    cpus = read(tmp_path, files)
    assert (cpus.online.get(), cpus.online.source) == (list(range(8)), "/proc/cpuinfo")
    assert cpus.smt.get() == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert cpus.smt.source == "/proc/cpuinfo physical id, core id"
    assert (cpus.package_count.get(), cpus.core_count.get()) == (2, 4)
    assert [c.id for c in cpus.cpus] == [*range(8), 9]


def test_siblings_are_unknown_where_one_cpu_was_not_captured(tmp_path: Path) -> None:
    files = topology()
    for cpu in (3, 7):
        del files[f"{CPU}/cpu{cpu}/topology/thread_siblings_list"]
    del files["/proc/cpuinfo"]
    cpus = read(tmp_path, files)
    assert cpus.smt.gap == NOT_CAPTURED
    assert cpus.core_count.gap == NOT_CAPTURED
    assert cpus.cpus[0].siblings == [0, 4]


def test_numbers_that_stand_for_none(tmp_path: Path) -> None:
    files = topology()
    files[f"{CPU}/cpu0/topology/physical_package_id"] = "-1\n"
    files[f"{CPU}/cpu0/topology/core_id"] = "-1\n"
    files[f"{CPU}/cpu0/topology/cluster_cpus_list"] = "0,4\n"
    files[f"{CPU}/cpu0/topology/cluster_id"] = "65535\n"
    cpu = read(tmp_path, files).cpus[0]
    assert (cpu.package, cpu.core, cpu.cluster) == (None, None, None)


def test_caches_once_each(tmp_path: Path) -> None:
    files = topology()
    for cpu in range(8):
        for index, (level, kind, size, shared) in enumerate(
            (
                (1, "Data", "32K", f"{cpu % 4},{cpu % 4 + 4}"),
                (2, "Unified", "1024K", f"{cpu % 4},{cpu % 4 + 4}"),
                (3, "Unified", "28M", "0-1,4-5" if cpu % 4 < 2 else "2-3,6-7"),
            )
        ):
            folder = f"{CPU}/cpu{cpu}/cache/index{index}"
            files |= {
                f"{folder}/level": f"{level}\n",
                f"{folder}/type": f"{kind}\n",
                f"{folder}/size": f"{size}\n",
                f"{folder}/shared_cpu_list": f"{shared}\n",
            }
    caches = read(tmp_path, files).caches
    assert len(caches) == 4 + 4 + 2
    assert [c.cpus for c in caches if c.level == 3] == [[0, 1, 4, 5], [2, 3, 6, 7]]
    assert {c.size_bytes for c in caches if c.level == 3} == {28 * 1024 * 1024}


# -- kinds of core ---------------------------------------------------------------------------


def test_hybrid_x86(tmp_path: Path) -> None:
    files = {**topology(), "/sys/devices/cpu_core/cpus": "0-5\n", "/sys/devices/cpu_atom/cpus": "6-7\n"}
    cpus = read(tmp_path, files)
    assert cpus.hybrid.get() is True
    assert [c.core_type for c in cpus.cpus] == ["performance"] * 6 + ["efficient"] * 2


def test_favoured_cores_of_x86_are_no_other_kind(tmp_path: Path) -> None:
    files = {**topology(), "/sys/devices/cpu/type": "4\n"}
    files |= {f"{CPU}/cpu{n}/cpu_capacity": f"{1024 if n < 2 else 700}\n" for n in range(8)}
    cpus = read(tmp_path, files)
    assert cpus.hybrid.get() is False
    assert cpus.cpus[5].capacity == 700 and cpus.cpus[5].core_type is None


@pytest.mark.parametrize(("small", "hybrid"), [(446, True), (1000, False)])
def test_capacities_of_arm(tmp_path: Path, small: int, hybrid: bool) -> None:
    core = (
        "processor\t: {}\nFeatures\t: fp\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd0b\n\n"
    )
    files = {f"{CPU}/online": "0-1\n", "/proc/cpuinfo": core.format(0) + core.format(1)}
    files |= {f"{CPU}/cpu0/cpu_capacity": f"{small}\n", f"{CPU}/cpu1/cpu_capacity": "1024\n"}
    cpus = read(tmp_path, files)
    assert cpus.hybrid.get() is hybrid
    assert cpus.cpus[0].core_type == ("efficient" if hybrid else None)


# -- clocks and idle states ------------------------------------------------------------------


def test_policies_of_old_kernels_lie_in_each_cpu(tmp_path: Path) -> None:
    files = topology()
    for cpu in range(8):
        folder = f"{CPU}/cpu{cpu}/cpufreq"
        files |= {
            f"{folder}/scaling_governor": "ondemand\n",
            f"{folder}/affected_cpus": f"{core(cpu)} {core(cpu) + 4}\n",
        }
    cpus = read(tmp_path, files)
    assert [p.cpus for p in cpus.policies] == [[0, 4], [1, 5], [2, 6], [3, 7]]


def core(cpu: int) -> int:
    return cpu % 4


def test_an_empty_governor_is_no_governor(tmp_path: Path) -> None:
    cpus = read(tmp_path, {**topology(), **frequency(scaling_governor="")})
    assert cpus.policies[0].governor.gap == INVALID


def test_an_empty_cpufreq_folder_of_a_foreign_capture_tells_nothing(tmp_path: Path) -> None:
    files = {**topology(), f"{CPU}/cpufreq": Directory()}
    assert read(tmp_path, files).policies_listed.gap == NOT_CAPTURED


def test_an_empty_cpufreq_folder_of_a_live_host_means_no_driver(tmp_path: Path) -> None:
    files = {**topology(), f"{CPU}/cpufreq": Directory()}
    assert read(tmp_path, files, complete=True).policies_listed.gap == ABSENT


@pytest.mark.parametrize(
    ("file", "content", "on"),
    [
        ("intel_pstate/no_turbo", "0\n", True), ("intel_pstate/no_turbo", "1\n", False),
        ("cpufreq/boost", "1\n", True), ("cpufreq/boost", "0\n", False), ("cpufreq/boost", "2\n", None),
    ],
)  # fmt: skip
def test_turbo(tmp_path: Path, file: str, content: str, on: bool | None) -> None:
    assert read(tmp_path, {f"{CPU}/{file}": content}).turbo.value is on


def test_idle_states_differ_where_some_are_switched_off(tmp_path: Path) -> None:
    files = {**topology(), **idle()}
    files[f"{CPU}/cpu5/cpuidle/state3/disable"] = "0\n"
    groups = read(tmp_path, files).idle_groups
    assert [g.cpus for g in groups] == [[0, 1, 2, 3, 4, 6, 7], [5]]
    assert groups[1].states[3].path == f"{CPU}/cpu5/cpuidle/state3"


def test_latencies_are_each_cpus_own_with_a_driver_each(tmp_path: Path) -> None:
    files = {**topology(), **idle()}
    files |= {f"{CPU}/cpu{n}/cpuidle/driver/name": "psci\n" for n in range(8)}
    files[f"{CPU}/cpu1/cpuidle/state2/latency"] = "777\n"
    groups = read(tmp_path, files).idle_groups
    assert [g.cpus for g in groups] == [[0, 2, 3, 4, 5, 6, 7], [1]]


def test_a_denied_latency_request(tmp_path: Path) -> None:
    cpus = read(tmp_path, topology(), libraries={("cpu_latency",): Gap(DENIED)})
    assert cpus.latency_request_us.gap == DENIED


# -- throttling ------------------------------------------------------------------------------


def test_counts_are_the_highest_of_a_package_and_never_a_sum(tmp_path: Path) -> None:
    files = {**topology(), **throttle({1: 3, 5: 4, 6: 9}, {0: 50, 1: 51, 4: 50, 5: 50})}
    files[f"{CPU}/cpu0/thermal_throttle/package_throttle_total_time_ms"] = "0\n"
    files[f"{CPU}/cpu1/thermal_throttle/package_throttle_total_time_ms"] = "1234\n"
    first, second = read(tmp_path, files).throttles
    assert (first.package, first.package_events, first.package_cpu) == (0, 51, 1)
    assert (first.core_events, first.core_cpu, first.total_ms) == (4, 5, 1234)
    assert (second.package_events, second.core_events, second.core_cpu) == (0, 9, 6)


def test_the_log_counts_where_sysfs_does_not(tmp_path: Path) -> None:
    throttled = "temperature above threshold, cpu clock throttled (total events ="
    log = (
        f"[    1.000000] mce: CPU4: Package {throttled} 8)\n"
        f"[    2.000000] mce: CPU0: Package {throttled} 9)\n"
        f"[    2.000001] mce: CPU0: Core {throttled} 2)\n"
    )
    (found,) = read(tmp_path, topology(), documents={"dmesg.txt": log}).throttles
    assert (found.package, found.package_events, found.core_events) == (0, 9, 2)
    assert found.source == "documents/dmesg.txt"


def test_a_silent_log_proves_nothing(tmp_path: Path) -> None:
    cpus = read(tmp_path, topology(), documents={"dmesg.txt": "[    1.000000] Linux version 6.1\n"})
    assert cpus.throttles == [] and cpus.throttles_listed.gap == NOT_CAPTURED


# -- pasted texts ----------------------------------------------------------------------------


def test_lscpu_fills_what_the_tree_lacks(tmp_path: Path) -> None:
    text = (
        "Architecture:          x86_64\nCPU(s):                4\nOn-line CPU(s) list:   0,1\n"
        "Off-line CPU(s) list:  2,3\nThread(s) per core:    1\nCore(s) per socket:    2\n"
        "Socket(s):             1\n"
        "Vendor ID:             GenuineIntel\nCPU family:            6\nModel:                 85\n"
        "Model name:            Some Xeon\nNUMA node0 CPU(s):     0,1\n"
    )
    cpus = read(tmp_path, {}, documents={"a.txt": text})
    assert (cpus.online.get(), cpus.offline.get()) == ([0, 1], [2, 3])
    assert (cpus.core_count.get(), cpus.smt.get(), cpus.model_name.get()) == (2, [], "Some Xeon")
    assert [c.node for c in cpus.cpus] == [0, 0]
    assert cpus.online.source.endswith("a.txt")


def test_the_tree_goes_before_lscpu(tmp_path: Path) -> None:
    text = "Architecture: x86_64\nCPU(s): 1\nOn-line CPU(s) list: 0\nModel name: Other\n"
    cpus = read(tmp_path, topology(), documents={"a.txt": text})
    assert cpus.online.get() == list(range(8))
    assert cpus.model_name.get().startswith("Intel")


# -- libraries -------------------------------------------------------------------------------


def test_cpu_latency_reads_four_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = tmp_path / "cpu_dma_latency"
    monkeypatch.setattr(cpu_latency, "_DEVICE", str(device))
    device.write_bytes(struct.pack("=i", 20))
    assert cpu_latency.query() == 20
    device.write_bytes(b"\0\0")
    with pytest.raises(LibraryGap):
        cpu_latency.query()


def test_py_cpuinfo_is_asked_only_while_a_capture_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[str] = []

    def query() -> dict[str, Any]:
        asked.append("cpuinfo")
        return {"brand": "Some CPU", "flags": ["fp"]}

    monkeypatch.setattr(cpuinfo, "query", query)
    live = LiveHost(str(tmp_path))  # a root with nothing in it: no /proc/cpuinfo
    assert not probe.read(live).model_name.known
    assert asked == []
    cpus = probe.read(Recorder(live))
    assert (cpus.model_name.get(), cpus.flags.get(), asked) == ("Some CPU", ["fp"], ["cpuinfo"])


def test_py_cpuinfo_as_a_capture_has_it(tmp_path: Path) -> None:
    cpus = read(tmp_path, {}, libraries={("cpuinfo",): {"brand": "Some CPU", "vendor": "Acme"}})
    assert (cpus.model_name.get(), cpus.vendor.get()) == ("Some CPU", "Acme")
    assert not cpus.flags.known


# -- anything may stand in any file ----------------------------------------------------------


@pytest.mark.parametrize(
    "content", ["", "\n", "(null)", "-1", "18446744073709551616", b"\xff\xfe\0\x01", "0-99999999"]
)
def test_any_file_may_hold_anything(tmp_path: Path, content: str | bytes) -> None:
    for number, path in enumerate(sorted(healthy())):
        if number % 7 == len(content) % 7 or path.count("/") < 6:
            files = {**healthy(), path: content}
            read(tmp_path / str(number), files)


def test_any_file_may_be_a_folder(tmp_path: Path) -> None:
    for number, path in enumerate(sorted(healthy())):
        if number % 9 == 0:
            read(tmp_path / str(number), {**healthy(), path: Directory()})
