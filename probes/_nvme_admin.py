"""What a controller says for itself: Identify, features, SMART log, and the kernel's sensor."""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING, Any

from hwtune.fact import ABSENT, NOT_CAPTURED, NOT_PROBED, UNREADABLE, Fact, gap, known
from hwtune.model.storage import NvmeController, PowerState, PowerTransition, Smart
from hwtune.text import nvme_identify, nvme_log

if TYPE_CHECKING:
    from hwtune.host.base import Host

# What a controller must be for commands to reach it: the driver refuses any other.
_LIVE = "live"


def ask(host: Host, controller: NvmeController) -> None:
    """Fill what only the drive itself can tell. Controllers of fabrics are not asked: what is
    behind them is no drive of this machine."""
    if controller.transport.known and controller.transport.get() != "pcie":
        return
    device = f"/dev/{controller.name}"
    if controller.state.known and controller.state.get() != _LIVE:
        _without(controller, device, UNREADABLE, f"its state is {controller.state.get()}")
        return
    said = host.ask("nvme_admin", controller.name)
    if said.gap is not None:
        _without(controller, device, said.gap, said.detail)
        _sensor(host, controller)
        return
    answers = said.value if isinstance(said.value, dict) else {}
    hung = answers.get("hung")
    controller.answers = known(not hung, f"{device} {hung}" if hung else device)
    identify = _answer(answers, "identify", f"{device} Identify", hung).map(_controller_of)
    controller_facts(controller, identify)
    _features(controller, answers, device, identify, hung)
    smart = _answer(answers, "smart", f"{device} SMART log", hung)
    controller.smart = smart_facts(smart.map(lambda answer: nvme_log.decode(_data(answer))))
    refused = answers.get("smart")
    if isinstance(refused, dict) and isinstance(refused.get("status"), int):
        controller.smart.failed_status = refused["status"]


def _without(controller: NvmeController, device: str, kind: str, detail: str = "") -> None:
    """The same reason for all that the drive itself would have told."""
    controller.answers = Fact(None, device, kind, detail)
    controller_facts(controller, Fact(None, f"{device} Identify", kind, detail))
    controller.apst_enabled = Fact(None, f"{device} feature 0Ch", kind, detail)
    controller.apst_transitions = Fact(None, f"{device} feature 0Ch", kind, detail)
    controller.volatile_write_cache_enabled = Fact(None, f"{device} feature 06h", kind, detail)
    controller.thermal_management = Fact(None, f"{device} feature 10h", kind, detail)
    controller.smart = smart_facts(Fact(None, f"{device} SMART log", kind, detail))


# -- answers ------------------------------------------------------------------------------


def _answer(answers: dict[str, Any], name: str, source: str, hung: Any) -> Fact[dict[str, Any]]:
    """A drive that did not identify is asked no more: the same reason then holds for all."""
    answer = answers.get(name)
    if not isinstance(answer, dict):
        answer = answers.get("identify")
        if hung or not isinstance(answer, dict) or "gap" not in answer:
            return gap(UNREADABLE, source, "no answer in time" if hung else "not asked")
    said = answer.get("gap")
    if isinstance(said, list) and len(said) == 2:
        return gap(str(said[0]), source, str(said[1]))
    return known(answer, source)


def _data(answer: dict[str, Any]) -> bytes:
    try:
        return binascii.a2b_base64(answer["data"])
    except (KeyError, TypeError, binascii.Error) as error:
        raise ValueError(f"no data: {error}") from None


def _result(answer: dict[str, Any]) -> int:
    value = answer.get("result")
    if not isinstance(value, int):
        raise ValueError("no result")
    return value


def _controller_of(answer: dict[str, Any]) -> nvme_identify.Controller:
    return nvme_identify.decode(_data(answer))


# Fields of the model -> of Identify.
_IDENTIFIED = (
    ("model", "model"),
    ("serial", "serial"),
    ("firmware", "firmware"),
    ("version", "version"),
    ("apst_supported", "apst"),
    ("volatile_write_cache_present", "write_cache"),
    ("host_memory_buffer_kib", "host_memory_kib"),
    ("power_states", "states"),
    ("warning_temp_c", "warning_temp_c"),
    ("critical_temp_c", "critical_temp_c"),
)


def controller_facts(controller: NvmeController, said: Fact[nvme_identify.Controller]) -> None:
    """Take over what Identify says; what is known already stays (sysfs has the same names)."""
    for field, name in _IDENTIFIED:
        value = None if said.value is None else getattr(said.value, name)
        if field == "power_states" and value is not None:
            value = [PowerState(*state) for state in value]
        elif field.endswith("_temp_c") and value == -nvme_identify.KELVIN:
            # 0 K stands for a threshold that the drive does not report
            value = gap(ABSENT, said.source, "the drive reports none")
        _set(controller, field, said, value)


def _set(target: Any, field: str, said: Fact[Any], value: Any) -> None:
    if said.gap is not None:
        fact: Fact[Any] = Fact(None, said.source, said.gap, said.detail)
    elif isinstance(value, Fact):
        fact = value
    elif value is None:
        fact = gap(NOT_CAPTURED, said.source, f"no {field.replace('_', ' ')} in it")
    else:
        fact = known(value, said.source)
    setattr(target, field, better(getattr(target, field), fact))


def better(current: Fact[Any], other: Fact[Any]) -> Fact[Any]:
    """What is known stays; what nobody has told of is replaced; else what says more."""
    if current.gap in (NOT_PROBED, NOT_CAPTURED):
        return other
    return current.or_else(other)


def blank(name: str) -> NvmeController:
    """A controller of which only a text tells, by the kernel's name or by that of the text."""
    kernels = name.startswith("nvme") and name[4:].isdecimal()
    nothing: Fact[Any] = gap(NOT_CAPTURED, f"/sys/class/nvme/{name}" if kernels else "/sys/class/nvme")
    controller = NvmeController(name)
    for field in ("pci_address", "transport", "state", "numa_node", "queue_count", "latency_tolerance"):
        setattr(controller, field, nothing)
    _without(controller, f"/dev/{name}" if kernels else "the drive's", NOT_CAPTURED)
    return controller


def _features(
    controller: NvmeController,
    answers: dict[str, Any],
    device: str,
    identify: Fact[nvme_identify.Controller],
    hung: Any,
) -> None:
    def gated(name: str, gate: str, number: str) -> Fact[dict[str, Any]]:
        """The feature's answer; ABSENT where Identify says that the drive does not have it."""
        source = f"{device} feature {number}"
        if identify.value is None:
            return Fact(None, source, identify.gap, identify.detail)
        if not getattr(identify.value, gate):
            return gap(ABSENT, source, "Identify says that the drive does not have it")
        return _answer(answers, name, source, hung)

    apst = gated("apst", "apst", "0Ch")
    controller.apst_enabled = apst.map(lambda answer: bool(_result(answer) & 1))
    controller.apst_transitions = apst.map(
        lambda answer: [PowerTransition(*line) for line in nvme_log.decode_transitions(_data(answer))]
    )
    cache = gated("write_cache", "write_cache", "06h")
    controller.volatile_write_cache_enabled = cache.map(lambda answer: bool(_result(answer) & 1))
    thermal = gated("thermal_management", "thermal_management", "10h")
    controller.thermal_management = thermal.map(
        lambda answer: nvme_log.decode_thermal_management(_result(answer))
    )


def smart_facts(said: Fact[nvme_log.SmartLog]) -> Smart:
    """The log's fields as facts; those that a text lacks are gaps with the text as source."""
    smart = Smart()
    for field in nvme_log.SmartLog._fields:
        value = None if said.value is None else getattr(said.value, field)
        if field == "temperature_c" and said.known and value is None:
            setattr(smart, field, gap(ABSENT, said.source, "the drive reports no temperature"))
        else:
            _set(smart, field, said, value)
    return smart


# -- the kernel's sensor ------------------------------------------------------------------


def _sensor(host: Host, controller: NvmeController) -> None:
    """Temperature and thresholds, for those who may not ask the drive."""
    said = host.ask("nvme_hwmon", controller.name)
    values = said.value if isinstance(said.value, dict) else None
    if values is None:
        if said.gap == NOT_CAPTURED:
            _captured_sensor(host, controller)
        return
    folder = str(values.get("path", ""))
    for file, fact in (
        ("temp1_input", "temperature_c"), ("temp1_max", "warning_temp_c"), ("temp1_crit", "critical_temp_c"),
    ):  # fmt: skip
        value = values.get(file)
        if isinstance(value, int):
            _take(controller, fact, known(value, f"{folder}/{file}"))


def _captured_sensor(host: Host, controller: NvmeController) -> None:
    """The same from the files of a snapshot, where nothing can hang."""
    for parent in (f"/sys/class/nvme/{controller.name}", f"/sys/class/nvme/{controller.name}/device/hwmon"):
        for name in host.names(parent).value or ():
            if name.startswith("hwmon") and name[5:].isdecimal():
                for file, fact in (
                    ("temp1_input", "temperature_c"),
                    ("temp1_max", "warning_temp_c"),
                    ("temp1_crit", "critical_temp_c"),
                ):
                    value = host.integer(f"{parent}/{name}/{file}")
                    if value.known:
                        _take(controller, fact, value.map(lambda thousandths: round(thousandths / 1000)))
                return


def _take(controller: NvmeController, field: str, fact: Fact[int]) -> None:
    target: Any = controller.smart if field == "temperature_c" else controller
    # 0 K: the drive measures nothing, or has no such threshold
    if not getattr(target, field).known and fact.get() > -nvme_identify.KELVIN:
        setattr(target, field, fact)
