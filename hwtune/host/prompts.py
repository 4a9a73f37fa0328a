"""The lines of a pasted text that show which command printed what follows.

Shell prompts ("$ lspci -vvv", "[root@box ~]# dmesg", "# $ nvidia-smi -q"), a shell's trace
("+ lscpu"), headings ("=== ethtool -S eth0 ===", "==> /proc/interrupts <=="), and a command alone
on its line where nothing else looks like it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# A prompt with a name in it, or a lone dollar: no output begins like this.
_SURE = re.compile(
    r"(?:\([\w.-]{1,60}\) )?\[?[\w.-]{1,60}@[\w.-]{1,80}[ :][^\s$#\]]{0,200}\]?[$#]\s+(\S.*)"
    r"|(?:#\s?)?\$ (\S.*)"
)
# These also begin comments, quotations and diffs: a prompt only before a program that we know.
_MAYBE = re.compile(r"(?:#|\+|>|%)\s{0,2}(\S.*)")
_RULES = frozenset(("==", "##", "**", "~~", "--", "<<", ">>", "=>", "<="))
_RULER = re.compile(r"#{8,}\s*|```.*|~~~.*")

_LONGEST = 2000

PROGRAMS = frozenset(
    (
        "nvidia-smi",
        "lspci",
        "lscpu",
        "numactl",
        "dmesg",
        "journalctl",
        "nvme",
        "smartctl",
        "ethtool",
        "ibstat",
        "ibstatus",
        "ip",
        "udevadm",
        "cyclictest",
        "rtla",
        "env",
        "printenv",
        "edac-util",
        "ras-mc-ctl",
        "dmidecode",
        "tuned-adm",
        "cpupower",
        "sysctl",
        "chronyc",
        "irqbalance",
        "uname",
        "lsblk",
        "lsmod",
        "mount",
        "free",
        "uptime",
        "top",
        "numastat",
        "turbostat",
        "lstopo",
        "lsmem",
        "systemctl",
        "timedatectl",
        "cat",
        "head",
        "tail",
        "grep",
        "zcat",
    )
)
# A command alone on its line needs a second word that no output puts there.
_SECOND = re.compile(
    r"-|/|smart-log|id-ctrl|id-ns|error-log|get-feature|list\b|topo\b|nvlink\b|info --|link\b|top\b|hist\b"
)
_ALONE = frozenset(
    ("nvidia-smi", "lspci", "lscpu", "dmesg", "ibstat", "ibstatus", "env", "printenv", "uptime")
)
_BEFORE = frozenset(
    ("sudo", "doas", "env", "time", "nice", "chrt", "timeout", "taskset", "watch", "numactl", "exec")
)


class Prompt(NamedTuple):
    #: the command line, "" for a line that only separates
    command: str


def prompt(line: str) -> Prompt | None:
    """What a line says about those below it; None for a line of output. Time is linear."""
    if len(line) > _LONGEST:
        # The longest command lines are of nvidia-smi --query-gpu; what they print is not ours.
        return Prompt(line[:_LONGEST]) if line.startswith(("$ ", "# $ ")) else None
    if _RULER.fullmatch(line):
        return Prompt("")
    found = _SURE.match(line)
    if found:
        return Prompt(found[1] or found[2])
    found = _MAYBE.match(line)
    if found and program(found[1]):
        return Prompt(found[1])
    inside = _heading(line)
    if inside and (program(inside) or inside.startswith(("/proc/", "/sys/"))):
        return Prompt(inside)
    return Prompt(line) if _is_bare(line) else None


def _heading(line: str) -> str:
    """What stands between at least two signs on either side; "" where these are not."""
    if line[:2] not in _RULES or line.rstrip(": \t")[-2:] not in _RULES:
        return ""
    return line.strip("=#*~<>-: \t")


def _is_bare(line: str) -> bool:
    first, _, rest = line.partition(" ")
    if first in ("sudo", "doas"):
        return bool(program(line))
    if first not in PROGRAMS:
        return False
    return first in _ALONE if not rest.strip() else bool(_SECOND.match(rest.lstrip())) and ": " not in line


def program(command: str) -> str:
    """The name of the program that a command line runs, "" where it is none that we know."""
    words = split(command)
    return words[0] if words and words[0] in PROGRAMS else ""


def split(command: str) -> list[str]:
    """The words of the first program in a command line, its name without its folder, without
    what runs it (sudo, assignments)."""
    words = command.split("|")[0].split(";")[0].split("&&")[0].split(">")[0].split()
    while words:
        name = words[0].rpartition("/")[2]
        if "=" in name or (words[0] in _BEFORE and len(words) > 1 and _runs_another(words)):
            words = words[1:]
            while words and (words[0].startswith("-") or words[0].isdigit()):
                words = words[1:]
            continue
        if words[0].startswith(("/proc/", "/sys/")):
            return ["cat", words[0]]
        return [name, *words[1:]]
    return []


def _runs_another(words: list[str]) -> bool:
    """Whether one of the next few words is a program (numactl and env are programs, too)."""
    return any(word.rpartition("/")[2] in PROGRAMS for word in words[1:5])


_FILES = frozenset(("/proc/interrupts", "/proc/cmdline", "/proc/meminfo", "/proc/cpuinfo"))


def kind(command: str) -> str:
    """The kind of document that a command line prints (``hwtune.host.recognise``), or ""."""
    words = split(command)
    if not words:
        return ""
    name, options = words[0], words[1:]
    flags = "".join(word[1:] for word in options if word.startswith("-") and not word.startswith("--"))
    chooser = {
        "nvidia-smi": _nvidia_smi,
        "lspci": _lspci,
        "ethtool": _ethtool,
        "nvme": _nvme,
        "rtla": _rtla,
    }.get(name)
    if chooser:
        return chooser(options, flags)
    if name in ("cat", "head", "tail", "grep", "zcat"):
        return next((word for word in options if word in _FILES), "")
    if name == "journalctl":
        return "dmesg" if "k" in flags or "--dmesg" in options else ""
    if name == "smartctl":
        return "smartctl --json" if "--json" in options or "j" in flags else "smartctl -a"
    if name == "ip":
        return "ip -s link" if "s" in flags or "-statistics" in options else "ip link"
    if name == "numactl":
        return "numactl -H" if "H" in flags or "--hardware" in options else ""
    if name == "udevadm":
        return "udevadm info --export-db" if "--export-db" in options else ""
    if name == "sysctl":
        return "" if "p" in flags or "w" in flags or "=" in command else "sysctl -a"
    if name in ("env", "printenv"):
        return "environment"
    return name if name in ("lscpu", "dmesg", "ibstat", "dmidecode", "cyclictest", "edac-util") else ""


def _nvidia_smi(options: list[str], flags: str) -> str:
    if not options:
        return "nvidia-smi"
    if "topo" in options:
        return "nvidia-smi topo -m" if "m" in flags or "--matrix" in options else ""
    if "nvlink" in options:
        return "nvidia-smi nvlink -s" if "s" in flags or "--status" in options else ""
    if "q" in flags or "--query" in options:
        return "nvidia-smi -q -x" if "x" in flags or "--xml-format" in options else "nvidia-smi -q"
    return ""


def _lspci(options: list[str], flags: str) -> str:
    for letter, found in (("t", "lspci -t"), ("m", "lspci -mm"), ("v", "lspci -v"), ("k", "lspci -v")):
        if letter in flags:
            return found
    return "lspci"


def _ethtool(options: list[str], flags: str) -> str:
    if not options or not options[0].startswith("-"):
        return "ethtool"
    long = {
        "--statistics": "S",
        "--show-channels": "l",
        "--show-ring": "g",
        "--show-coalesce": "c",
        "--show-features": "k",
        "--show-offload": "k",
        "--driver": "i",
        "--show-pause": "a",
        "--show-time-stamping": "T",
    }
    letter = long.get(options[0], options[0][1:])
    return f"ethtool -{letter}" if letter in tuple("SlgckiaT") else ""


def _nvme(options: list[str], flags: str) -> str:
    return f"nvme {options[0]}" if options and options[0] in ("smart-log", "id-ctrl", "error-log") else ""


def _rtla(options: list[str], flags: str) -> str:
    return f"rtla {options[0]}" if options and options[0] in ("timerlat", "osnoise") else ""


def from_file_name(name: str) -> str:
    """The command line that a sosreport's file name stands for ("ethtool_-S_eth0",
    "nvme_smart-log_.dev.nvme0n1"), "" for any other name. It tells of which device a text is,
    never of which kind."""
    words = name.split("_")
    if words[0] not in PROGRAMS or len(words) < 2:
        return ""
    return " ".join("/" + word[1:].replace(".", "/") if word.startswith(".dev.") else word for word in words)
