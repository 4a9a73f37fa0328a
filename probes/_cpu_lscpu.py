"""A pasted lscpu, where the tree is silent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwtune.fact import INVALID, Fact, gap, known
from hwtune.model.cpus import Cpu
from hwtune.text import lscpu
from hwtune.text.cpulist import MAX_CPUS

if TYPE_CHECKING:
    from hwtune.model.cpus import Cpus

_TEXTS = {"model_name": "Model name", "vendor": "Vendor ID", "architecture": "Architecture"}
_NUMBERS = {"family": "CPU family", "model": "Model", "threads_per_core": "Thread(s) per core"}


def fill(cpus: Cpus, text: str, source: str) -> None:
    """What is not known yet, from ``text``; ``source`` is its path."""
    found = lscpu.fields(text)
    for field, name in _TEXTS.items():
        if found.get(name) and found[name] != "-":
            _keep(cpus, field, known(found[name], source))
    for field, name in _NUMBERS.items():
        if found.get(name, "").isdecimal():
            _keep(cpus, field, known(int(found[name]), source))
    if found.get("Flags"):
        _keep(cpus, "flags", known(found["Flags"].split(), source))
    for field, name in (("online", "On-line CPU(s)"), ("offline", "Off-line CPU(s)")):
        told = found.get(f"{name} list") or found.get(f"{name} mask")
        if told:
            _keep(cpus, field, _list(told, f"{source} {name}", source))
    _counts(cpus, found, source)
    _members(cpus, lscpu.node_cpus(found))
    if not cpus.vulnerabilities_listed.known and (names := lscpu.vulnerabilities(found)):
        cpus.vulnerabilities = {name: known(text, source) for name, text in names.items()}
        cpus.vulnerabilities_listed = known(True, source)


def _keep(cpus: Cpus, field: str, fact: Fact[Any]) -> None:
    setattr(cpus, field, getattr(cpus, field).or_else(fact))


def _list(text: str, place: str, source: str) -> Fact[list[int]]:
    try:
        return known(lscpu.cpus(text), source)
    except ValueError:
        return gap(INVALID, place, repr(text[:60]))


def _counts(cpus: Cpus, found: dict[str, str], source: str) -> None:
    sockets = found.get("Socket(s)", "")
    cores = found.get("Core(s) per socket", "")
    if not sockets.isdecimal():
        return
    _keep(cpus, "package_count", known(int(sockets), source))
    if cores.isdecimal():
        _keep(cpus, "core_count", known(int(cores) * int(sockets), source))
    if found.get("Thread(s) per core") == "1":
        _keep(cpus, "smt", known([], source))  # no core has two; of more lscpu does not say which


def _members(cpus: Cpus, nodes: dict[int, list[int]]) -> None:
    by_id = {cpu.id: cpu for cpu in cpus.cpus}
    for number in cpus.online.value or []:
        if number < MAX_CPUS and number not in by_id:
            by_id[number] = Cpu(id=number)
    cpus.cpus = [by_id[number] for number in sorted(by_id)]
    if any(cpu.node is not None for cpu in cpus.cpus):
        return
    for node, members in nodes.items():
        for number in members:
            if number in by_id:
                by_id[number].node = node
