"""What NVML says of the GPU while a run lasts: clocks, what holds them down, temperature, the PCIe link.

Asked seldom, as each question takes the driver's attention; by a thread that nobody waits for, as a driver
that hangs keeps its caller. NVML is used here in this process, which has the GPU open anyhow.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from hwtune.model.gpu import EVENT_REASONS
from hwtune.validate.gpu.results import Clocks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

EVERY_S = 1.0
_GIVEN_UP_S = 2.0
_SM, _MEMORY, _TEMPERATURE_GPU = 1, 2, 0  # NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU


class Sampler:
    """A block of time in which the GPU at ``pci`` is looked at, from the CPUs ``rest``."""

    def __init__(self, pci: str, rest: Sequence[int], every_s: float = EVERY_S) -> None:
        self._pci = pci
        self._rest = rest
        self._every_s = every_s
        self._over = threading.Event()
        self._seen: dict[str, list[int]] = {}
        self._reasons = 0
        self._samples = 0
        self._why = ""
        self._thread = threading.Thread(target=self._live, name="hwtune-nvml", daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(_GIVEN_UP_S)
        if self._thread.is_alive():
            self._why = "NVML did not answer"

    def told(self) -> Clocks:
        if not self._samples:
            return Clocks(0, self._why or "the run was too short")
        seen = dict(self._seen)
        reasons = tuple(name for bit, name in EVENT_REASONS.items() if self._reasons & bit)
        return Clocks(
            samples=self._samples,
            why=self._why,
            sm_mhz_low=min(seen.get("sm", ()), default=None),
            sm_mhz_high=max(seen.get("sm", ()), default=None),
            memory_mhz_low=min(seen.get("memory", ()), default=None),
            temperature_c_high=max(seen.get("temperature", ()), default=None),
            pcie_generation_low=min(seen.get("generation", ()), default=None),
            pcie_width_low=min(seen.get("width", ()), default=None),
            event_reasons=reasons,
        )

    def _live(self) -> None:
        try:
            if self._rest:
                os.sched_setaffinity(0, self._rest)  # of this thread
            import pynvml
        except (ImportError, OSError) as error:
            self._why = str(error)
            return
        nvml: Any = pynvml  # it has no types
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            self._why = f"NVML cannot be asked: {error}"
            return
        try:
            handle = nvml.nvmlDeviceGetHandleByPciBusId(self._pci.encode())
            while not self._over.wait(self._every_s):
                self._look(nvml, handle)
        except nvml.NVMLError as error:
            self._why = f"NVML cannot be asked: {error}"
        finally:
            nvml.nvmlShutdown()

    def _look(self, nvml: Any, handle: Any) -> None:
        asked: dict[str, Callable[[], Any]] = {
            "sm": lambda: nvml.nvmlDeviceGetClockInfo(handle, _SM),
            "memory": lambda: nvml.nvmlDeviceGetClockInfo(handle, _MEMORY),
            "temperature": lambda: nvml.nvmlDeviceGetTemperature(handle, _TEMPERATURE_GPU),
            "generation": lambda: nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle),
            "width": lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle),
            "reasons": lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle),
        }
        for name, ask in asked.items():
            try:
                value = int(ask())
            except nvml.NVMLError:  # this GPU or driver does not say
                continue
            if name == "reasons":
                self._reasons |= value
            else:
                self._seen.setdefault(name, []).append(value)
        self._samples += 1
