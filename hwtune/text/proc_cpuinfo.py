"""/proc/cpuinfo in the forms of x86, arm, arm64, riscv, powerpc, s390, loongarch, ia64 and sparc.

Each architecture prints its own (the show_cpuinfo of arch/*/kernel); all list only online CPUs.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from hwtune.text.cpulist import MAX_CPUS
from hwtune.text.number import finite, hexadecimal

# arch/arm64/include/asm/cputype.h and Arm's list of implementer codes
IMPLEMENTERS = {
    0x41: "ARM", 0x42: "Broadcom", 0x43: "Cavium", 0x46: "Fujitsu", 0x48: "HiSilicon", 0x4E: "NVIDIA",
    0x50: "APM", 0x51: "Qualcomm", 0x53: "Samsung", 0x56: "Marvell", 0x61: "Apple", 0x69: "Intel",
    0x6D: "Microsoft", 0x70: "Phytium", 0xC0: "Ampere",
}  # fmt: skip
PARTS = {
    (0x41, 0xC07): "Cortex-A7", (0x41, 0xC09): "Cortex-A9", (0x41, 0xC0F): "Cortex-A15",
    (0x41, 0xD03): "Cortex-A53", (0x41, 0xD04): "Cortex-A35", (0x41, 0xD05): "Cortex-A55",
    (0x41, 0xD07): "Cortex-A57", (0x41, 0xD08): "Cortex-A72", (0x41, 0xD09): "Cortex-A73",
    (0x41, 0xD0A): "Cortex-A75", (0x41, 0xD0B): "Cortex-A76", (0x41, 0xD0C): "Neoverse-N1",
    (0x41, 0xD0D): "Cortex-A77", (0x41, 0xD40): "Neoverse-V1", (0x41, 0xD41): "Cortex-A78",
    (0x41, 0xD44): "Cortex-X1", (0x41, 0xD46): "Cortex-A510", (0x41, 0xD47): "Cortex-A710",
    (0x41, 0xD48): "Cortex-X2", (0x41, 0xD49): "Neoverse-N2", (0x41, 0xD4D): "Cortex-A715",
    (0x41, 0xD4E): "Cortex-X3", (0x41, 0xD4F): "Neoverse-V2", (0x41, 0xD80): "Cortex-A520",
    (0x41, 0xD81): "Cortex-A720", (0x41, 0xD82): "Cortex-X4", (0x41, 0xD84): "Neoverse-V3",
    (0x41, 0xD8E): "Neoverse-N3", (0x46, 0x001): "A64FX", (0x48, 0xD01): "Kunpeng-920",
    (0x4E, 0x004): "Carmel", (0x61, 0x022): "Icestorm-M1", (0x61, 0x023): "Firestorm-M1",
    (0x61, 0x024): "Icestorm-M1-Pro", (0x61, 0x025): "Firestorm-M1-Pro", (0xC0, 0xAC3): "Ampere-1",
    (0xC0, 0xAC4): "Ampere-1a",
}  # fmt: skip

# Compiled where a text needs them, which is rare.
_S390_CPU = r"(?m)^processor (\d+): .*\bmachine = (\w+)"
_SPARC_CPU = r"(?m)^CPU(\d+):\s+online"

_MODEL_NAMES = ("model name", "Model Name", "cpu", "Processor", "uarch")
_VENDORS = ("vendor_id", "vendor", "mvendorid")
_FLAGS = ("flags", "Features", "features", "cpucaps", "isa")


class CpuInfo(NamedTuple):
    """``first``: each field where it is first told, of a CPU or of the whole machine. ``packages``,
    ``cores`` and ``mhz`` are by CPU number and hold what the text says of it."""

    cpus: list[int]
    first: dict[str, str]
    packages: dict[int, int]
    cores: dict[int, int]
    mhz: dict[int, float]
    microcodes: list[str]
    parts: list[tuple[int, int]]  # (implementer, part) of arm, in their order
    machine: str  # s390's machine type

    @property
    def model_name(self) -> str | None:
        known = [PARTS[part] for part in self.parts if part in PARTS]
        if known and len(known) == len(self.parts):
            return " + ".join(known)
        for field in _MODEL_NAMES:
            if self.first.get(field):
                return self.first[field]
        if self.machine:
            return f"machine type {self.machine}"
        family = self.first.get("family", "")  # where older kernels of ia64 have a name ("Itanium 2")
        return family if family and not family.isdecimal() else None

    @property
    def vendor(self) -> str | None:
        if self.parts:
            code = self.parts[0][0]
            return IMPLEMENTERS.get(code, f"implementer {code:#04x}")
        return next((self.first[f] for f in _VENDORS if self.first.get(f)), None)

    @property
    def flags(self) -> list[str] | None:
        for field in _FLAGS:
            if self.first.get(field):
                text = self.first[field]
                return [flag.strip() for flag in text.split(",")] if "," in text else text.split()
        return None

    @property
    def architecture(self) -> str | None:
        """What the CPU is, as ``uname -m`` of a 64-bit kernel would call it."""
        first = self.first
        if "flags" in first:
            return "x86_64" if " lm " in f" {first['flags']} " else "i386"
        if self.machine:
            return "s390x"
        if first.get("isa", "").startswith("rv"):
            return "riscv" + first["isa"][2:4]
        if first.get("arch") == "IA-64":
            return "ia64"
        if "CPU architecture" in first:
            return "aarch64" if first["CPU architecture"] in ("8", "AArch64") else "armv7l"
        if "loongarch64" in first.get("ISA", ""):
            return "loongarch64"
        return "sparc64" if first.get("type", "").startswith("sun4") else None

    @property
    def siblings(self) -> list[list[int]] | None:
        """CPUs by core, where package and core numbers of every CPU are told and the counts that x86
        prints beside them ("siblings" threads and "cpu cores" of a package) agree; else None."""
        if not self.cpus or any(c not in self.packages or c not in self.cores for c in self.cpus):
            return None
        groups: dict[tuple[int, int], list[int]] = {}
        for cpu in self.cpus:
            groups.setdefault((self.packages[cpu], self.cores[cpu]), []).append(cpu)
        try:
            threads, cores = int(self.first["siblings"]), int(self.first["cpu cores"])
        except (KeyError, ValueError):
            return None
        if cores < 1 or any(len(group) > max(threads // cores, 1) for group in groups.values()):
            return None
        return [sorted(group) for group in groups.values()]


def parse(text: str) -> CpuInfo:
    """Raises ``ValueError`` where not one line is a field."""
    found = CpuInfo([], {}, {}, {}, {}, [], [], "")
    current: int | None = None
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if not colon:
            continue
        name, value = name.strip(), value.strip()
        if name == "processor":
            current = _cpu(value)
            if current is not None:
                found.cpus.append(current)
        elif name not in found.first:
            found.first[name] = " ".join(value.split())
        if current is not None:
            _note(found, current, name, value)
    return _finish(found, text)


def _note(found: CpuInfo, cpu: int, name: str, value: str) -> None:
    """What is told of each CPU anew and may differ."""
    if name == "physical id":
        _put(found.packages, cpu, value)
    elif name == "core id":
        _put(found.cores, cpu, value)
    elif name == "cpu MHz":
        try:
            found.mhz[cpu] = finite(value)
        except ValueError:
            return
    elif name == "microcode":
        if value not in found.microcodes:
            found.microcodes.append(value)
    elif name == "CPU part":
        part = (_hexadecimal(found.first.get("CPU implementer", "")), _hexadecimal(value))
        if None not in part and part not in found.parts:
            found.parts.append(part)  # type: ignore[arg-type]


def _finish(found: CpuInfo, text: str) -> CpuInfo:
    machine = ""
    if not found.cpus:
        s390 = re.findall(_S390_CPU, text)
        machine = s390[0][1] if s390 else ""
        numbers = [number for number, _ in s390] or re.findall(_SPARC_CPU, text)
        found.cpus.extend(cpu for cpu in map(_cpu, numbers) if cpu is not None)
    if not found.cpus and not found.first:
        raise ValueError("not a cpuinfo")
    return found._replace(cpus=sorted(set(found.cpus)), machine=machine)


def _cpu(text: str) -> int | None:
    return int(text) if text.isdecimal() and int(text) < MAX_CPUS else None


def _put(numbers: dict[int, int], cpu: int, text: str) -> None:
    if text.isdecimal():
        numbers[cpu] = int(text)


def _hexadecimal(text: str) -> int | None:
    try:
        return hexadecimal(text)
    except ValueError:
        return None
