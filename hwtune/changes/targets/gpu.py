"""Settings of NVIDIA GPUs, through NVML in a process of its own (``hwtune.changes.nvml_child``): a
driver that crashes must not take the one down who has to write the journal."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from hwtune.changes.system import ChangeError, FileState
from hwtune.changes.targets.base import Target, Value

if TYPE_CHECKING:
    from hwtune.changes.system import System

SETTINGS = ("persistence", "power-limit", "locked-clocks", "compute-mode")
UNLOCKED = "unlocked"
# NVML tells no locked clocks, so that what was set is noted where it lives as long as they do.
_NOTES = "/run/hwtune"
_MODES = ("Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process")  # nvmlComputeMode_t
_IDLE = 1  # nvmlClocksEventReasonGpuIdle, and nothing else
_TIMEOUT_S = 60.0
_CHILD = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from hwtune.changes import nvml_child; nvml_child.main(sys.argv[2:])"
)
_WHY = {
    "NOT_SUPPORTED": "the GPU does not support it",
    "NO_PERMISSION": "NVML does not let this user, or this container, change it",
    "INVALID_ARGUMENT": "the GPU does not take this value",
    "INSUFFICIENT_POWER": "the GPU's power cables are not attached",
    "GPU_IS_LOST": "the GPU has fallen off the bus; reboot",
    "LIBRARY_NOT_FOUND": "the NVIDIA driver's libnvidia-ml.so.1 is not installed",
    "DRIVER_NOT_LOADED": "the NVIDIA driver is not loaded",
    "LIB_RM_VERSION_MISMATCH": "the driver in the kernel is not the installed one; reload it or reboot",
}


class GpuAttribute(Target):
    """The value is a text: persistence "0" or "1", power-limit in mW, locked-clocks "min,max" in MHz
    or "unlocked", compute-mode by nvidia-smi's name. None where there is no such GPU."""

    kind = "gpu"

    def __init__(self, address: str, setting: str) -> None:
        if setting not in SETTINGS:
            raise ChangeError(f"this version knows no {setting} of GPUs")
        self.address = address
        self.setting = setting

    @classmethod
    def from_rest(cls, rest: str) -> GpuAttribute:
        address, _, setting = rest.partition(" ")
        return cls(address, setting)

    @property
    def key(self) -> str:
        return f"gpu {self.address} {self.setting}"

    def read(self, system: System) -> Value:
        said = self._ask(system, "get", "")
        if said is None:
            return None
        if self.setting == "locked-clocks":
            return self._locked(system, int(said[0]), int(said[1]))
        if self.setting == "compute-mode":
            return _MODES[said] if said < len(_MODES) else str(said)
        return str(said)

    def write(self, system: System, value: Value) -> None:
        if value is None:
            raise ChangeError(f"GPU {self.address} cannot be removed")
        text = str(value)
        locks = self.setting == "locked-clocks"
        if locks:
            self._forget(system)
        if self._ask(system, "set", str(_mode(text)) if self.setting == "compute-mode" else text) is None:
            raise ChangeError(f"there is no GPU {self.address} any more")
        if locks and text != UNLOCKED:
            self._note(system, text)

    def same(self, one: Value, other: Value) -> bool:
        if self.setting == "compute-mode" and one is not None and other is not None:
            return _mode(one) == _mode(other)
        return bool(one == other)

    def show(self, value: Value) -> str:
        if value is not None and self.setting == "power-limit":
            return f"{int(value) / 1000:g} W"
        return super().show(value)

    def _ask(self, system: System, verb: str, value: str) -> Any:
        """What the child says; None where there is no such GPU."""
        if not system.host.exists("/proc/driver/nvidia").value:
            raise ChangeError(_WHY["DRIVER_NOT_LOADED"])
        paths = json.dumps([os.path.abspath(path) for path in sys.path])
        argv = [sys.executable, "-I", "-c", _CHILD, paths, verb, self.address, self.setting, value]
        try:
            said = json.loads(system.run(argv, _TIMEOUT_S).stdout)
        except ChangeError:
            raise ChangeError(f"NVML did not come back from {verb} {self.setting}") from None
        except ValueError:
            raise ChangeError(f"NVML's answer to {verb} {self.setting} cannot be read") from None
        error = said.get("error")
        if error in ("NOT_FOUND", "INVALID_PCI"):
            return None
        if error is not None:
            raise ChangeError(f"{self.setting} of GPU {self.address}: {_WHY.get(error, error)}")
        return said.get("value")

    # -- locked clocks ------------------------------------------------------------------------

    def _locked(self, system: System, clock: int, reasons: int) -> str:
        """What was noted, unless the SM clock says that it is no longer so. Heat and power caps slow
        a GPU below its lock; that it is idle does not, and nothing makes it faster."""
        state = system.file(self._place())
        if state is None:
            return UNLOCKED
        noted = state.content.decode("ascii", "replace").strip()
        low, _, high = noted.partition(",")
        if not (low.isdecimal() and high.isdecimal()) or clock > int(high):
            return UNLOCKED
        return UNLOCKED if clock < int(low) and reasons == _IDLE else noted

    def _note(self, system: System, value: str) -> None:
        system.make_directory(_NOTES)
        owner = (0, 0) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
        system.write_file(self._place(), FileState(f"{value}\n".encode(), 0o644, *owner))

    def _forget(self, system: System) -> None:
        if system.directory(_NOTES):
            system.remove_file(self._place())
            system.remove_directory(_NOTES)

    def _place(self) -> str:
        return f"{_NOTES}/gpu-clocks-{self.address}"


def _mode(name: str) -> int:
    names = [mode.lower() for mode in _MODES]
    wanted = name.lower().replace(" ", "_")
    if wanted not in names:
        raise ChangeError(f"{name} is no compute mode")
    return names.index(wanted)
