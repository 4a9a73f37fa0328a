"""From NVML's library to the model: the real nvidia-ml-py, in the real child, over a fake library."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from hwtune.fact import ABSENT, DENIED, UNREADABLE
from hwtune.host.libraries import LibraryGap, nvml
from hwtune.probes import gpu as probe
from tests.support import fake_nvml, host
from tests.support.fake_nvml import A100, H100, T4, scenario

if TYPE_CHECKING:
    from pathlib import Path

    from hwtune.model.machine import Gpus


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_nvml.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def read(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def of(text: str, timeout_s: float = 20.0) -> Gpus:
        told = fake_nvml.answers(library, text, monkeypatch, timeout_s)
        return probe.read(host(tmp_path, {}, complete=True, libraries={("nvml",): told}))

    return of


def test_two_a100s_on_a_switch(read: Any) -> None:
    found = read(scenario(A100, A100))
    assert found.host.driver_version.get() == "550.54.15"
    assert found.host.cuda_version.get() == "12.4"
    assert found.host.nvml.get() is True
    first, second = found.gpus
    assert (first.index, first.address, second.address) == (0, "0000:07:00.0", "0000:0f:00.0")
    assert first.name.get() == "NVIDIA A100-SXM4-80GB"
    assert first.architecture.get() == "Ampere"
    assert first.persistence.get() is True
    assert first.power_limit_mw.get() == 400_000
    assert first.event_reasons.get() == ["gpu_idle"]
    assert first.idle is True
    assert first.cpu_affinity.get() == list(range(16))
    assert first.memory_total_bytes.get() == 80 << 30
    assert first.clocks.get() == {"graphics": 210, "sm": 210, "memory": 1593}
    assert first.replay_count.get() == 3
    assert first.lost.get() is False
    assert first.recovery_action.get() == "None"
    assert first.link.current_gts.get() == 16.0
    assert first.link.max_width.get() == 16
    assert [link.link for link in first.nvlinks.get()] == list(range(12))
    assert all(link.active.get() and link.remote_type.get() == "switch" for link in first.nvlinks.get())
    assert first.nvlinks.get()[0].speed_mbps.get() == 25_000
    assert first.nvlinks.get()[0].errors.get() == {"replay": 0, "recovery": 0, "crc_flit": 0, "crc_data": 0}
    # Both have twelve links to the switches.
    assert [(p.first, p.second, p.path, p.p2p) for p in found.host.pairs] == [("GPU0", "GPU1", "NV12", "OK")]


def test_facts_name_the_call_that_told_them(read: Any) -> None:
    first = read(scenario(A100)).gpus[0]
    assert first.persistence.source == "nvmlDeviceGetPersistenceMode(GPU 0)"
    assert first.clocks.source == "nvmlDeviceGetClockInfo(GPU 0, graphics)"


def test_what_a_t4_does_not_have_is_absent(read: Any) -> None:
    first = read(scenario(T4)).gpus[0]
    for fact in (first.mig, first.remapped_rows, first.nvlinks, first.fabric_state):
        assert fact.gap == ABSENT, fact
    assert first.retired_pages.get() == {"single_bit": 0, "double_bit": 0}
    assert first.retired_pending.get() is False


def test_an_h100_tells_its_links_by_field_and_its_fabric_with_a_summary(read: Any) -> None:
    sleeping = {**H100, "link17.field165": "2", "link17.state": "0", "link5.field165": "0"}
    first = read(scenario(sleeping, H100)).gpus[0]
    links = first.nvlinks.get()
    assert len(links) == 18
    # Asleep is not inactive; the field wins over the older call.
    assert [link.link for link in links if not link.active.get()] == [5]
    assert first.fabric_state.get() == "Completed"
    assert first.fabric_health.get() == "Healthy"


def test_links_end_where_the_gpu_says_so_without_a_count(read: Any) -> None:
    uncounted = {k: v for k, v in A100.items() if k != "field91" and not k.startswith("link")}
    uncounted.update({f"link{n}.state": "1" for n in range(6)})
    assert len(read(scenario(uncounted)).gpus[0].nvlinks.get()) == 6


def test_links_from_gpu_to_gpu_are_counted(read: Any) -> None:
    direct = {**A100, "field91": "6"}
    direct.update({f"link{n}.remote": "0" for n in range(6)})
    direct.update({f"link{n}.pci": "00000000:0F:00.0" for n in range(4)})
    assert read(scenario(direct, direct)).host.pairs[0].path == "NV4"


def test_fabric_of_an_older_driver_has_no_summary(read: Any) -> None:
    first = read(scenario({**A100, "fabric": "3 0 0x11"})).gpus[0]
    assert first.fabric_problems.get() == ["bandwidth degraded", "route unhealthy"]
    assert first.fabric_health.get() == "Unhealthy"
    assert read(scenario({**A100, "fabric": "2 0 0x0"})).gpus[0].fabric_state.get() == "In Progress"
    assert read(scenario({**A100, "fabric": "0 0 0x0"})).gpus[0].fabric_state.gap == ABSENT


def test_the_older_name_of_a_call_serves_older_drivers(read: Any) -> None:
    old = {
        **A100,
        "nvmlDeviceGetCurrentClocksEventReasons": "!13",
        "nvmlDeviceGetCurrentClocksThrottleReasons": "0x48",
    }
    first = read(scenario(old)).gpus[0]
    assert first.event_reasons.get() == ["hw_slowdown", "hw_thermal_slowdown"]
    assert first.event_reasons.source == "nvmlDeviceGetCurrentClocksThrottleReasons(GPU 0)"


def test_processes_have_names_and_memory(read: Any) -> None:
    busy = {**A100, "compute": "4242 1073741824 4243 0", "graphics": "17 1048576"}
    first = read(scenario(busy, pid4242="/usr/bin/serve", pid17="Xorg")).gpus[0]
    found = [(p.pid, p.name, p.kind, p.memory_bytes) for p in first.processes.get()]
    assert found == [
        (4242, "/usr/bin/serve", "compute", 1 << 30),
        (4243, "", "compute", 0),
        (17, "Xorg", "graphics", 1 << 20),
    ]


def test_a_lost_gpu_is_told_beside_a_good_one(read: Any) -> None:
    found = read(scenario(A100, {"": "!15"}))
    assert [gpu.lost.get() for gpu in found.gpus] == [False, True]
    assert found.gpus[1].name.gap == "not-probed"
    later = read(scenario({**A100, "nvmlDeviceGetPowerUsage": "!15"})).gpus[0]
    assert later.lost.get() is True
    assert later.power_mw.gap == UNREADABLE


def test_what_needs_more_rights_is_denied(read: Any) -> None:
    first = read(scenario({**A100, "nvmlDeviceGetPersistenceMode": "!4"})).gpus[0]
    assert first.persistence.gap == DENIED


def test_a_gpu_that_must_be_reset_says_so(read: Any) -> None:
    assert read(scenario({**A100, "field230": "4"})).gpus[0].recovery_action.get() == "Drain and Reset"
    needs = read(scenario({**A100, "nvmlDeviceGetMemoryInfo": "!16"})).gpus[0]
    assert needs.recovery_action.get() == "GPU Reset"


def test_a_hung_driver_costs_the_time_limit_and_no_more(read: Any) -> None:
    hung = scenario(A100, {**A100, "nvmlDeviceGetEccMode": "hang"})
    started = time.monotonic()
    found = read(hung, timeout_s=3.0)
    assert time.monotonic() - started < 5.0
    # What was told before is kept: who is there, and all of the first GPU.
    assert [gpu.name.get() for gpu in found.gpus] == ["NVIDIA A100-SXM4-80GB"] * 2
    assert found.gpus[0].nvlinks.known
    assert found.gpus[1].ecc_enabled.gap == UNREADABLE
    assert "hung in nvmlDeviceGetEccMode of gpu 1" in found.gpus[1].ecc_enabled.detail
    assert "no answer within 3 s" in found.host.nvml_error


def test_a_crashing_library_is_told_and_does_not_take_us_with_it(read: Any) -> None:
    found = read(scenario({**A100, "nvmlDeviceGetMigMode": "crash"}))
    assert "crashed in nvmlDeviceGetMigMode of gpu 0" in found.host.nvml_error
    assert found.gpus[0].persistence.get() is True


@pytest.mark.parametrize(("code", "name"), [("!9", "DRIVER_NOT_LOADED"), ("!18", "LIB_RM_VERSION_MISMATCH")])
def test_nvml_that_does_not_start(read: Any, code: str, name: str) -> None:
    found = read(scenario(A100, nvmlInit=code))
    assert found.host.nvml.get() is False
    assert found.host.nvml_error == name
    assert found.gpus == []


def test_no_library_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    told = nvml.ask(20.0)
    if told["system"]["nvmlInit"].get("value"):
        pytest.skip("this machine has NVIDIA's own library")
    assert told["system"] == {"nvmlInit": {"error": "LIBRARY_NOT_FOUND"}}


def test_nothing_is_started_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "_SIGNS", ("/nowhere/nvidia",))
    monkeypatch.setattr(nvml, "ask", lambda _: pytest.fail("asked NVML without a driver"))
    with pytest.raises(LibraryGap) as caught:
        nvml.query()
    assert caught.value.kind == ABSENT


@pytest.mark.parametrize(
    "told",
    [
        [],
        "text",
        {},
        {"system": {}, "gpus": {}, "pairs": []},
        {"system": {"nvmlInit": {"value": True}}, "gpus": [3], "pairs": []},
        {"system": {"nvmlInit": 7}, "gpus": [{}], "pairs": [[0, 1]]},
        {"system": {"nvmlInit": {"value": True}}, "gpus": [{}], "pairs": [[0, 9, {}]]},
        {
            "system": {"nvmlInit": {"value": True}, "nvmlSystemGetCudaDriverVersion": {"value": "x"}},
            "gpus": [
                {
                    "nvmlDeviceGetPciInfo": {"value": 5},
                    "nvmlDeviceGetMigMode": {"value": []},
                    "nvmlDeviceGetMemoryInfo": {"value": None},
                    "nvmlDeviceGetComputeRunningProcesses_v3": {"value": [[1]]},
                    "nvmlDeviceGetGpuFabricInfo": {"value": {"state": 9}},
                    "nvmlDeviceGetCpuAffinity": {"value": ["a"]},
                    "nvmlDeviceGetNvLinkState(0)": {"value": "on"},
                    "field(NVLINK_GET_STATE, 0)": {"value": []},
                }
            ],
            "pairs": [],
        },
    ],
)
def test_a_capture_may_hold_anything_in_the_answers_place(told: Any, tmp_path: Path) -> None:
    found = probe.read(host(tmp_path, {}, libraries={("nvml",): told}))
    assert all(gpu.name.unknown for gpu in found.gpus)
