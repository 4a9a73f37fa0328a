"""Settings of GPUs: the target, and the child that asks NVML."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from hwtune.changes import kinds, nvml_child
from hwtune.host.base import CommandResult
from tests.support import Directory
from tests.support.changes import Machine, failing
from tests.unit.changes.test_compile import BOX

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

GPU = "0000:17:00.0"


class Error(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value


class Nvml:
    """NVML with one GPU, as nvidia-ml-py shows it."""

    NVMLError = Error
    NVML_ERROR_INVALID_ARGUMENT = 2
    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_ERROR_NO_PERMISSION = 4
    NVML_ERROR_NOT_FOUND = 6
    NVML_ERROR_DRIVER_NOT_LOADED = 9

    def __init__(self) -> None:
        self.persistence, self.limit, self.mode, self.lock = 0, 400_000, 0, None
        self.clock, self.reasons = 210, 1
        self.refused = 0

    def nvmlInit(self) -> None:
        return

    def nvmlDeviceGetHandleByPciBusId(self, address: str) -> str:
        if address != GPU:
            raise Error(6)
        return "gpu"

    def nvmlDeviceGetPersistenceMode(self, device: str) -> int:
        return self.persistence

    def nvmlDeviceSetPersistenceMode(self, device: str, mode: int) -> None:
        self._may()
        self.persistence = mode

    def nvmlDeviceGetPowerManagementLimit(self, device: str) -> int:
        return self.limit

    def nvmlDeviceSetPowerManagementLimit(self, device: str, limit: int) -> None:
        self._may()
        if not 100_000 <= limit <= 400_000:
            raise Error(2)
        self.limit = limit

    def nvmlDeviceGetComputeMode(self, device: str) -> int:
        return self.mode

    def nvmlDeviceSetComputeMode(self, device: str, mode: int) -> None:
        self._may()
        self.mode = mode

    def nvmlDeviceGetClockInfo(self, device: str, kind: int) -> int:
        assert kind == 1  # the SM clock
        return self.clock

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, device: str) -> int:
        return self.reasons

    def nvmlDeviceSetGpuLockedClocks(self, device: str, low: int, high: int) -> None:
        self._may()
        self.lock = (low, high)
        self.clock = low

    def nvmlDeviceResetGpuLockedClocks(self, device: str) -> None:
        self._may()
        self.lock = None
        self.clock = 210

    def _may(self) -> None:
        if self.refused:
            raise Error(self.refused)

    def run(self, argv: Sequence[str]) -> CommandResult | str:
        """The interpreter that is started for a question."""
        assert argv[1:3] == ["-I", "-c"]
        json.loads(argv[4])
        # the names of the errors are the module's, here the class's
        self.__dict__.update({k: v for k, v in vars(Nvml).items() if k.startswith("NVML_")})
        return json.dumps(nvml_child.answer(self, *argv[5:])) + "\n"


@pytest.fixture
def gpu(tmp_path: Path) -> tuple[Machine, Nvml]:
    import os
    import sys

    nvml = Nvml()
    tools: dict[str, Any] = {os.path.basename(sys.executable): nvml.run}
    machine = Machine(tmp_path, {**BOX, "/proc/driver/nvidia": Directory(), "/run": Directory()}, tools)
    machine.host.tools["systemctl"] = machine.systemd  # type: ignore[index]
    return machine, nvml


def test_settings_are_made_and_come_back(gpu: tuple[Machine, Nvml]) -> None:
    machine, nvml = gpu
    nvml.mode = 2
    before = machine.state()
    changes = (
        kinds.GpuSetting(GPU, "persistence", "1"),
        kinds.GpuSetting(GPU, "power-limit", "300000"),
        kinds.GpuSetting(GPU, "compute-mode", "Default"),
        kinds.GpuSetting(GPU, "locked-clocks", "1410,1410"),
    )
    applied = machine.apply(*changes)
    assert [(o.status, o.reason, o.before, o.after) for o in applied.outcomes] == [
        ("changed", "", "0", "1"),
        ("changed", "", "400 W", "300 W"),
        ("changed", "", "Prohibited", "Default"),
        ("changed", "", "unlocked", "1410,1410"),
    ]
    assert applied.problems == []
    assert (nvml.persistence, nvml.limit, nvml.mode, nvml.lock) == (1, 300_000, 0, (1410, 1410))
    listed = json.loads(machine.read("/etc/hwtune/boot.json"))["apply"]
    assert listed[3] == {"target": f"gpu {GPU} locked-clocks", "value": "1410,1410"}
    assert machine.apply(*changes).set_id is None
    assert machine.revert().whole
    assert (nvml.persistence, nvml.limit, nvml.mode, nvml.lock) == (0, 400_000, 2, None)
    assert machine.state() == before


def test_lock_that_somebody_took_off_is_seen(gpu: tuple[Machine, Nvml]) -> None:
    machine, nvml = gpu
    change = kinds.GpuSetting(GPU, "locked-clocks", "1200,1410")
    machine.apply(change)
    nvml.clock, nvml.reasons = 900, 0x24  # power cap and heat: the lock still holds
    assert machine.plan(change).changes[0].status == "in-force"
    nvml.clock, nvml.reasons = 210, 1  # idle below the lock
    assert machine.plan(change).changes[0].targets[0].before == "unlocked"
    nvml.clock, nvml.reasons = 1755, 0
    assert machine.plan(change).changes[0].targets[0].before == "unlocked"


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (3, "the GPU does not support it"),
        (4, "NVML does not let this user, or this container, change it"),
        (2, "the GPU does not take this value"),
        (9, "the NVIDIA driver is not loaded"),
    ],
)
def test_refusals(gpu: tuple[Machine, Nvml], refused: int, why: str) -> None:
    machine, nvml = gpu
    nvml.refused = refused
    outcome = machine.apply(kinds.GpuSetting(GPU, "power-limit", "300000")).outcomes[0]
    assert (outcome.status, outcome.reason) == ("failed", f"power-limit of GPU {GPU}: {why}")
    assert nvml.limit == 400_000


def test_gpu_that_is_gone_and_driver_that_is_not_there(gpu: tuple[Machine, Nvml], tmp_path: Path) -> None:
    machine, _ = gpu
    outcome = machine.apply(kinds.GpuSetting("0000:99:00.0", "power-limit", "300000")).outcomes[0]
    assert (outcome.status, outcome.reason) == ("failed", "gpu:0000:99:00.0/power-limit does not exist here")
    bare = Machine(tmp_path / "bare", BOX)
    outcome = bare.apply(kinds.GpuSetting(GPU, "power-limit", "300000")).outcomes[0]
    assert outcome.reason == "the NVIDIA driver is not loaded"


def test_child_that_dies(gpu: tuple[Machine, Nvml]) -> None:
    import os
    import sys

    machine, _ = gpu
    machine.host.tools[os.path.basename(sys.executable)] = lambda argv: failing(-11, "")  # type: ignore[index]
    outcome = machine.apply(kinds.GpuSetting(GPU, "power-limit", "300000")).outcomes[0]
    assert outcome.reason == "NVML did not come back from get power-limit"
