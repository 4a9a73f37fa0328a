"""The GPUs in pasted outputs of nvidia-smi: its long log (as text or XML) and its table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwtune.fact import DENIED, INVALID, NOT_CAPTURED, UNREADABLE, Fact, absent, gap, known
from hwtune.model.gpu import GENERATIONS, Gpu, GpuHost, GpuProcess
from hwtune.text import nvidia_smi_q, nvidia_smi_table, nvidia_smi_xml
from hwtune.text.number import finite
from hwtune.text.pci_address import normal

if TYPE_CHECKING:
    from collections.abc import Callable

    from hwtune.host.base import Host
    from hwtune.text.nvidia_smi_q import SmiGpu

LOST = "gpu is lost"
# What nvidia-smi prints for what a GPU does not have.
_NOTHING = ("n/a", "[n/a]", "not supported", "[not supported]")
_DEPRECATED = "deprecated"

# Clock event reasons: name -> (element, path in the text). Elements and headings were called
# throttle reasons before driver 535.
_REASONS = {
    "gpu_idle": ("gpu_idle", "idle"),
    "applications_clocks_setting": ("applications_clocks_setting", "applications clocks setting"),
    "sw_power_cap": ("sw_power_cap", "sw power cap"),
    "hw_slowdown": ("hw_slowdown", "hw slowdown"),
    "hw_thermal_slowdown": ("hw_thermal_slowdown", "hw slowdown/hw thermal slowdown"),
    "hw_power_brake_slowdown": ("hw_power_brake_slowdown", "hw slowdown/hw power brake slowdown"),
    "sync_boost": ("sync_boost", "sync boost"),
    "sw_thermal_slowdown": ("sw_thermal_slowdown", "sw thermal slowdown"),
    "display_clock_setting": ("display_clocks_setting", "display clock setting"),
}
_COUNTERS = {
    "sw_power_cap": ("sw_power_cap", "sw power capping"),
    "sync_boost": ("sync_boost", "sync boost"),
    "sw_thermal_slowdown": ("sw_therm_slowdown", "sw thermal slowdown"),
    "hw_thermal_slowdown": ("hw_therm_slowdown", "hw thermal slowdown"),
    "hw_power_brake_slowdown": ("hw_power_brake", "hw power braking"),
}


class _Log:
    """One GPU's section; facts are sourced to the document's path."""

    __slots__ = ("source", "values")

    def __init__(self, section: SmiGpu, source: str) -> None:
        self.values = section.values
        self.source = source

    def raw(self, *paths: str) -> str | None:
        """The first of these leaves that is there, or that a heading above one says in its place
        that there is nothing ("Remapped Rows : N/A")."""
        for path in paths:
            value = self.values.get(path)
            if value is not None:
                return value
        for path in paths:
            while "/" in path:
                path = path.rpartition("/")[0]
                value = self.values.get(path, "").strip().lower()
                if value in _NOTHING or value == LOST:
                    return value
        return None

    def fact(self, parse: Callable[[str], Any], *paths: str) -> Fact[Any]:
        value = self.raw(*paths)
        if value is None:
            return gap(NOT_CAPTURED, self.source, paths[0])
        lower = value.strip().lower()
        if lower in _NOTHING or _DEPRECATED in lower or not lower:
            return absent(self.source)
        if "insufficient permission" in lower:
            return gap(DENIED, self.source, paths[0])
        if lower == LOST or lower.strip("[]") in ("unknown error", "err!", "gpu requires reset"):
            return gap(UNREADABLE, self.source, value)
        try:
            return known(parse(value), self.source)
        except (ValueError, KeyError):
            return gap(INVALID, self.source, f"{paths[0]}: {value[:60]!r}")

    def group(self, parse: Callable[[str], int], paths: dict[str, tuple[str, ...]]) -> Fact[dict[str, int]]:
        facts = {key: self.fact(parse, *alternatives) for key, alternatives in paths.items()}
        found = {key: fact.get() for key, fact in facts.items() if fact.known}
        return known(found, self.source) if found else next(iter(facts.values()))


def read(host: Host, gpu_host: GpuHost) -> list[list[Gpu]]:
    """The GPUs of each document, the most telling first."""
    found = []
    for kind, parse in (("nvidia-smi -q -x", nvidia_smi_xml.parse), ("nvidia-smi -q", nvidia_smi_q.parse)):
        for document in reversed(host.documents(kind)):
            try:
                log = parse(document.text)
            except ValueError as error:
                if not gpu_host.listed.known:
                    gpu_host.listed = gap(INVALID, document.path, str(error))
                continue
            found.append(_gpus(log, document.path))
            _versions(gpu_host, log.driver_version, log.cuda_version, document.path)
            if log.attached is not None and log.attached == len(log.gpus):
                gpu_host.listed = gpu_host.listed.or_else(known(True, document.path))
    for document in reversed(host.documents("nvidia-smi")):
        table = nvidia_smi_table.parse(document.text)
        found.append(_table(table, document.path))
        _versions(gpu_host, table.driver_version, table.cuda_version, document.path)
    return found


def _versions(gpu_host: GpuHost, driver: str, cuda: str, source: str) -> None:
    if driver:
        gpu_host.driver_version = gpu_host.driver_version.or_else(known(driver, source))
    if cuda:
        gpu_host.cuda_version = gpu_host.cuda_version.or_else(known(cuda, source))


def _gpus(log: nvidia_smi_q.SmiLog, source: str) -> list[Gpu]:
    # nvidia-smi prints the GPUs in the order of their index; with -i some are left out.
    whole = log.attached is None or log.attached == len(log.gpus)
    return [
        _gpu(section, _Log(section, source), index if whole and section.address else None)
        for index, section in enumerate(log.gpus)
    ]


def _gpu(section: SmiGpu, log: _Log, index: int | None) -> Gpu:
    gpu = Gpu(
        index=index,
        address=normal(section.address) if section.address else None,
        source=log.source,
        labelled=bool(section.address),
        name=log.fact(str, "product_name", "product name"),
        uuid=log.fact(str, "uuid", "gpu uuid"),
        architecture=log.fact(str, "product_architecture", "product architecture"),
        persistence=log.fact(_switch, "persistence_mode", "persistence mode"),
        compute_mode=log.fact(str, "compute_mode", "compute mode"),
        mig=log.fact(_switch, "mig_mode/current_mig", "mig mode/current"),
        mig_pending=log.fact(_switch, "mig_mode/pending_mig", "mig mode/pending"),
        virtualization=log.fact(
            _virtualization,
            "gpu_virtualization_mode/virtualization_mode",
            "gpu virtualization mode/virtualization mode",
        ),
        performance_state=log.fact(_state, "performance_state", "performance state"),
        event_reasons=_reasons(log),
        throttle_counters_us=log.group(_microseconds, _counters()),
        power_mw=log.fact(_milliwatts, *_power("instant_power_draw", "average_power_draw", "power_draw")),
        power_limit_mw=log.fact(
            _milliwatts, *_power("enforced_power_limit", "current_power_limit", "power_limit")
        ),
        power_default_mw=log.fact(_milliwatts, *_power("default_power_limit")),
        power_min_mw=log.fact(_milliwatts, *_power("min_power_limit")),
        power_max_mw=log.fact(_milliwatts, *_power("max_power_limit")),
        temperature_c=log.fact(_degrees, "temperature/gpu_temp", "temperature/gpu current temp"),
        slowdown_c=log.fact(_degrees, "temperature/gpu_temp_slow_threshold", "temperature/gpu slowdown temp"),
        memory_total_bytes=log.fact(_bytes, "fb_memory_usage/total", "fb memory usage/total"),
        memory_used_bytes=log.fact(_bytes, "fb_memory_usage/used", "fb memory usage/used"),
        utilization_pct=log.fact(_percent, "utilization/gpu_util", "utilization/gpu"),
        ecc_enabled=log.fact(_switch, "ecc_mode/current_ecc", "ecc mode/current"),
        ecc_pending=log.fact(_switch, "ecc_mode/pending_ecc", "ecc mode/pending"),
        ecc_counts=_ecc(log),
        sram_threshold_exceeded=log.fact(
            _yes,
            "ecc_errors/aggregate/sram_threshold_exceeded",
            "ecc errors/aggregate/sram threshold exceeded",
        ),
        replay_count=log.fact(int, "pci/replay_counter", "pci/replays since reset"),
        recovery_action=log.fact(str, "gpu_recovery_action", "gpu recovery action"),
        lost=known(any(value.strip().lower() == LOST for value in log.values.values()), log.source),
    )
    _clocks(gpu, log)
    _memory_repair(gpu, log)
    _link(gpu, log)
    _fabric(gpu, log)
    gpu.processes = _processes(section, log)
    return gpu


def _counters() -> dict[str, tuple[str, ...]]:
    return {
        name: (
            f"clocks_event_reasons_counters/clocks_event_reasons_counters_{element}",
            f"clocks event reasons counters/{text}",
        )
        for name, (element, text) in _COUNTERS.items()
    }


def _reasons(log: _Log) -> Fact[list[str]]:
    states = {
        name: log.raw(
            f"clocks_event_reasons/clocks_event_reason_{element}",
            f"clocks_throttle_reasons/clocks_throttle_reason_{element}",
            f"clocks event reasons/{text}",
            f"clocks throttle reasons/{text}",
        )
        for name, (element, text) in _REASONS.items()
    }
    if any(state in ("Active", "Not Active") for state in states.values()):
        return known([name for name, state in states.items() if state == "Active"], log.source)
    return log.fact(_switch, "clocks_event_reasons/clocks_event_reason_gpu_idle", "clocks event reasons/idle")


def _power(*names: str) -> list[str]:
    """The elements and headings of a power reading over the years, the newest first."""
    words = {
        "instant_power_draw": "instantaneous power draw",
        "average_power_draw": "average power draw",
    }
    paths = []
    for name in names:
        text = words.get(name, name.replace("_", " "))
        for section in ("gpu_power_readings", "power_readings"):
            paths.append(f"{section}/{name}")
            paths.append(f"{section.replace('_', ' ')}/{text}")
        # since driver 610
        paths.append(f"gpu power readings/gpu ceiling power limit/{text}")
    return paths


def _clocks(gpu: Gpu, log: _Log) -> None:
    def clocks(element: str, heading: str) -> Fact[dict[str, int]]:
        return log.group(
            _megahertz,
            {
                "graphics": (f"{element}/graphics_clock", f"{heading}/graphics"),
                "sm": (f"{element}/sm_clock", f"{heading}/sm"),
                "memory": (f"{element}/mem_clock", f"{heading}/memory"),
                "video": (f"{element}/video_clock", f"{heading}/video"),
            },
        )

    gpu.clocks = clocks("clocks", "clocks")
    gpu.max_clocks = clocks("max_clocks", "max clocks")
    gpu.application_clocks = clocks("applications_clocks", "applications clocks")
    gpu.default_application_clocks = clocks("default_applications_clocks", "default applications clocks")


def _memory_repair(gpu: Gpu, log: _Log) -> None:
    gpu.retired_pages = log.group(
        int,
        {
            "single_bit": (
                "retired_pages/multiple_single_bit_retirement/retired_count",
                "retired pages/single bit ecc",
            ),
            "double_bit": (
                "retired_pages/double_bit_retirement/retired_count",
                "retired pages/double bit ecc",
            ),
        },
    )
    gpu.retired_pending = log.fact(
        _yes,
        "retired_pages/pending_retirement",
        "retired_pages/pending_blacklist",
        "retired pages/pending page blacklist",
        "retired pages/pending",
    )
    gpu.remapped_rows = log.group(
        int,
        {
            "correctable": ("remapped_rows/remapped_row_corr", "remapped rows/correctable error"),
            "uncorrectable": ("remapped_rows/remapped_row_unc", "remapped rows/uncorrectable error"),
        },
    )
    gpu.remap_pending = log.fact(_yes, "remapped_rows/remapped_row_pending", "remapped rows/pending")
    gpu.remap_failed = log.fact(
        _yes, "remapped_rows/remapped_row_failure", "remapped rows/remapping failure occurred"
    )


def _ecc(log: _Log) -> Fact[dict[str, int]]:
    """Every counter below the two sections, named as the XML names it."""
    counts: dict[str, int] = {}
    for path, value in log.values.items():
        parts = path.replace(" ", "_").replace("-", "_").split("/")
        if parts[0] == "ecc_errors" and parts[1:2] in (["volatile"], ["aggregate"]) and value.isdecimal():
            counts[".".join(parts[1:])] = int(value)
    if counts:
        return known(counts, log.source)
    return log.fact(
        int, "ecc_errors/volatile/dram_uncorrectable", "ecc errors/volatile/dram uncorrectable",
        "ecc_errors/volatile/double_bit/total", "ecc errors/volatile/double bit/total",
    )  # fmt: skip


def _link(gpu: Gpu, log: _Log) -> None:
    generation = "pci/pci_gpu_link_info/pcie_gen/"
    text = "pci/gpu link info/pcie generation/"
    link = gpu.link
    link.current_gts = log.fact(
        _gts, generation + "device_current_link_gen", text + "device current",
        generation + "current_link_gen", text + "current",
    )  # fmt: skip
    link.max_gts = log.fact(_gts, generation + "max_device_link_gen", text + "device max")
    link.expected_gts = log.fact(_gts, generation + "max_link_gen", text + "max")
    if not link.max_gts.known:
        link.max_gts = link.expected_gts
    width, text = "pci/pci_gpu_link_info/link_widths/", "pci/gpu link info/link width/"
    link.current_width = log.fact(_lanes, width + "current_link_width", text + "current")
    link.max_width = log.fact(_lanes, width + "max_link_width", text + "max")
    link.expected_width = link.max_width


def _fabric(gpu: Gpu, log: _Log) -> None:
    gpu.fabric_state = log.fact(str, "fabric/state")
    gpu.fabric_status = log.fact(str, "fabric/status")
    gpu.fabric_health = log.fact(str, "fabric/health/summary")
    problems = []
    for path, text in (
        ("fabric/health/route_unhealthy", "route unhealthy"),
        ("fabric/health/route unhealthy", "route unhealthy"),
        ("fabric/health/route_recovery_in_progress", "route recovery in progress"),
        ("fabric/health/route recovery in progress", "route recovery in progress"),
        ("fabric/health/access_timeout_recovery", "access timeout recovery in progress"),
        ("fabric/health/access timeout recovery", "access timeout recovery in progress"),
    ):
        if log.values.get(path) == "True":
            problems.append(text)
    bandwidth = log.values.get("fabric/health/bandwidth", "")
    if bandwidth == "Degraded":
        problems.append("bandwidth degraded")
    for path in ("fabric/health/incorrect_configuration", "fabric/health/incorrect configuration"):
        value = log.values.get(path, "None")
        if value not in ("None", "N/A", "GPU is lost", ""):
            problems.append(value.lower())
    gpu.fabric_problems = gpu.fabric_health.map(lambda _: problems)


def _processes(section: SmiGpu, log: _Log) -> Fact[list[GpuProcess]]:
    if section.processes or log.values.get("processes") in ("", "None"):
        return known([_process(*process) for process in section.processes], log.source)
    return log.fact(_switch, "processes")


def _process(pid: int, kind: str, name: str, memory: str) -> GpuProcess:
    number = memory.removesuffix("MiB").strip()
    return GpuProcess(
        pid, name, "compute" if "C" in kind else "graphics", int(number) << 20 if number.isdecimal() else None
    )


# -- the table ------------------------------------------------------------------------------


def _table(table: nvidia_smi_table.Table, source: str) -> list[Gpu]:
    gpus = []
    for row in table.gpus:
        ecc = row.uncorrected_ecc
        gpu = Gpu(
            index=row.number,
            address=normal(row.address),
            source=source,
            persistence=_cell(row.persistence, _on, source),
            performance_state=_cell(row.performance_state, int, source),
            power_mw=_cell(row.power, lambda watts: int(watts) * 1000, source),
            power_limit_mw=_cell(row.power_limit, lambda watts: int(watts) * 1000, source),
            temperature_c=_cell(row.temperature, int, source),
            memory_used_bytes=_cell(row.memory_used_mib, lambda mib: int(mib) << 20, source),
            memory_total_bytes=_cell(row.memory_total_mib, lambda mib: int(mib) << 20, source),
            utilization_pct=_cell(row.utilization, int, source),
            mig=_cell(row.mig, _switch, source),
        )
        if not row.name.endswith(".."):
            gpu.name = known(row.name, source)  # else it is cut off
        if ecc.isdecimal():
            gpu.ecc_enabled = known(True, source)
            gpu.ecc_counts = known({"volatile.uncorrectable_total": int(ecc)}, source)
        elif ecc == "Off":
            gpu.ecc_enabled = known(False, source)
        gpu.processes = known(
            [_process(p.pid, p.kind, p.name, p.memory) for p in table.processes if p.gpu == row.number],
            source,
        )
        gpus.append(gpu)
    return gpus


def _cell(text: str, parse: Callable[[str], Any], source: str) -> Fact[Any]:
    if not text:
        return gap(NOT_CAPTURED, source)
    if text == "N/A":
        return absent(source)
    try:
        return known(parse(text), source)
    except (ValueError, KeyError):
        return gap(UNREADABLE, source, text[:60])


# -- values ---------------------------------------------------------------------------------


def _switch(text: str) -> bool:
    return {"enabled": True, "disabled": False}[text.lower()]


def _on(text: str) -> bool:
    return {"on": True, "off": False}[text.lower()]


def _yes(text: str) -> bool:
    return {"yes": True, "no": False}[text.lower()]


def _virtualization(text: str) -> str:
    found = text.lower().replace(" ", "-")
    if found not in ("none", "pass-through", "vgpu", "host-vgpu", "host-vsga"):
        raise ValueError(text)
    return found


def _state(text: str) -> int:
    return int(text.upper().removeprefix("P"))


def _gts(text: str) -> float:
    return GENERATIONS[int(text)]


def _lanes(text: str) -> int:
    lanes = int(text.lower().removesuffix("x"))
    if lanes not in (1, 2, 4, 8, 16, 32):
        raise ValueError(text)
    return lanes


def _unit(text: str, unit: str) -> str:
    number, _, found = text.partition(" ")
    if found.strip() != unit:
        raise ValueError(text)
    return number


def _microseconds(text: str) -> int:
    return int(_unit(text, "us"))


def _megahertz(text: str) -> int:
    return int(_unit(text, "MHz"))


def _milliwatts(text: str) -> int:
    return round(finite(_unit(text, "W")) * 1000)


def _degrees(text: str) -> int:
    return int(_unit(text, "C"))


def _percent(text: str) -> int:
    return int(_unit(text, "%"))


def _bytes(text: str) -> int:
    return int(_unit(text, "MiB")) << 20
