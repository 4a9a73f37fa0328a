"""Pasted texts, known by their content.

A text may hold the outputs of several commands one after another: it is split at prompt lines
(``hwtune.host.prompts``) and where a line begins that only one command prints. Kinds are named as
the command is called: "nvidia-smi topo -m", "lspci -v" (verbose in any measure), "dmesg" (also a
journal or syslog with lines of the kernel), "/proc/interrupts"...

Every pattern is matched at the beginning of a line and takes time linear in its length.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from hwtune.host import prompts
from hwtune.text.number import without_endless

if TYPE_CHECKING:
    from collections.abc import Callable

# What is matched of a line; the rest of it is kept.
_LINE = 4000
# How far one looks to tell two kinds with the same first line apart.
_AHEAD = 12


class Piece(NamedTuple):
    kind: str
    #: the number of its first line in the text, from 1
    line: int
    text: str
    #: the command line shown above it, or ""
    command: str


class Start(NamedTuple):
    """How the output of a command begins."""

    kind: str
    pattern: str
    #: a second such line begins a second output, not a part of the same
    again: bool = False
    #: the lines from this one on must agree, too
    check: Callable[[list[str]], bool] | None = None
    #: another output begins with the same pattern
    shared: bool = False


def recognise(text: str) -> list[Piece]:
    """The known outputs in a cleaned text, in their order."""
    lines = text.split("\n")
    pieces: list[Piece] = []
    first, command = 0, ""
    for number, line in enumerate(lines):
        if line[:1] in _NO_PROMPT and not _QUOTED_PROMPT(line):
            continue
        found = prompts.prompt(line.strip())
        if found is None:
            continue
        pieces += _segment(lines, first, number, command)
        # A line that only separates stands between a heading and its output, too.
        if found.command or number > first:
            command = found.command
        first = number + 1
    return pieces + _segment(lines, first, len(lines), command)


# The characters that begin most lines of the large outputs and no prompt, but for a quoted one.
_NO_PROMPT = frozenset(" \t|EPSLINMQGVR0123456789")
_QUOTED_PROMPT = re.compile(r"[ \t]{1,12}(?:[$#] |\[?[\w.-]{1,60}@)").match


def _segment(lines: list[str], first: int, end: int, command: str) -> list[Piece]:
    """The outputs in the lines between two prompts."""
    pieces: list[Piece] = []
    while True:
        while first < end and not lines[first].strip():
            first += 1
        if first == end:
            return pieces
        kind, after = _structured(lines, first, end)
        if not kind:
            break
        pieces.append(Piece(kind, first + 1, "\n".join(lines[first:after]), command))
        first = after
    while not lines[end - 1].strip():
        end -= 1
    found = _outputs(lines, first, end, command)
    if not found:
        part = lines[first:end]
        if prompts.program(command):
            kind = "" if _FAILED.search(lines[first][:_LINE]) else prompts.kind(command)
            kind = "" if kind in _STRUCTURED else kind
        else:
            kind = _fragment(part)
        if kind:
            found = [Piece(kind, first + 1, "\n".join(part), command)]
    return pieces + found


_FAILED = re.compile(
    r"not found|[Nn]ot permitted|denied|No such|[Ii]nvalid|[Uu]sage|bad command|not supported", re.ASCII
)


def _outputs(lines: list[str], first: int, end: int, command: str) -> list[Piece]:
    indent = _indent(lines, first, end)
    pieces: list[Piece] = []
    kind, began = "", first
    for number in range(first, end):
        line = lines[number]
        if line.startswith(indent):
            line = line[len(indent) : len(indent) + _LINE]
        start = _begins(line, lines, number, end, kind, indent)
        if start is None:
            continue
        if kind:
            pieces.append(_piece(kind, lines, began, number, indent, command))
        elif not prompts.program(command) and (before := _fragment(lines[first:number])):
            pieces.append(Piece(before, first + 1, "\n".join(lines[first:number]), command))
        kind, began = start.kind, number
    if kind:
        pieces.append(_piece(kind, lines, began, end, indent, command))
    return [piece for piece in pieces if piece.kind]


def _begins(line: str, lines: list[str], number: int, end: int, current: str, indent: str) -> Start | None:
    """The output that begins with this line, unless it is the current one that goes on."""
    match = _starts().match(line)
    if match is None:
        return None
    start = _STARTS[int(match.lastgroup[1:])]  # type: ignore[index]
    if start.check is None:
        return None if start.kind == current and not start.again else start
    ahead = [other.removeprefix(indent)[:_LINE] for other in lines[number : min(end, number + _AHEAD)]]
    # Where its check fails, another may begin in the same way.
    for other in _STARTS if start.shared else (start,):
        if other.pattern == start.pattern and other.check is not None and other.check(ahead):
            return None if other.kind == current and not other.again else other
    return None


# Their first line, and perhaps all of them, are indented as they are printed.
_INDENTED = frozenset(
    ("nvidia-smi topo -m", "nvidia-smi topo -p2p", "/proc/interrupts", "rtla timerlat", "rtla osnoise")
)


def _piece(kind: str, lines: list[str], began: int, end: int, indent: str, command: str) -> Piece:
    part = lines[began:end]
    if indent and kind not in _INDENTED:
        part = [line.removeprefix(indent) for line in part]
    refine = _REFINE.get(kind)
    if refine and not (command and prompts.kind(command) == kind):
        kind = refine(part)
    return Piece(kind, began + 1, "\n".join(part), command)


_MOST_INDENT = 200


def _indent(lines: list[str], first: int, end: int) -> str:
    """The white space that all lines begin with (a quotation), as far as the first fifty show."""
    common: str | None = None
    for line in lines[first : min(end, first + 50)]:
        body = line.lstrip(" \t")
        if not body:
            continue
        own = line[: min(len(line) - len(body), _MOST_INDENT)]
        if common is None:
            common = own
        while not own.startswith(common):
            common = common[:-1]
        if not common:
            return ""
    return common or ""


# -- how each output begins ----------------------------------------------------------------


def _has(*wanted: str) -> Callable[[list[str]], bool]:
    """One of the next lines begins with one of these words."""
    return lambda lines: any(line.lstrip().startswith(wanted) for line in lines[1:])


_LINKS = frozenset(("X", "PIX", "PXB", "PHB", "NODE", "SYS", "SOC", "PSB"))


def _is_link(cell: str) -> bool:
    return cell in _LINKS or (cell.startswith("NV") and cell[2:].isdigit())


def _topology(lines: list[str]) -> bool:
    """A matrix of links: by its affinity columns, or by the cells of its first row."""
    if "Affinity" in lines[0]:
        return True
    for line in lines[1:]:
        cells = line.split()
        if cells and cells[0] == "GPU0":
            return any(_is_link(cell) and cell != "X" for cell in cells[1:])
    return False


_PEER = frozenset(("OK", "CNS", "GNS", "TNS", "NS", "U", "DR"))


def _peer_access(lines: list[str]) -> bool:
    for line in lines[1:]:
        cells = line.split()
        if cells and cells[0] == "GPU0":
            return any(cell in _PEER for cell in cells[1:])
    return False


# Forms of a kernel log's line: dmesg with seconds, with the level, with a date (-T), with the
# facility (-x), with ISO dates, /dev/kmsg itself, and a journal's or syslog's (journalctl -o short,
# short-precise, short-iso, short-full, short-unix). A kernel with CONFIG_PRINTK_CALLER adds [T812].
_STAMP = (
    r"(?:<\d{1,3}>)?\[ {0,10}\+?\d{1,10}\.\d{1,9}\](?:\[ {0,8}[TC]\d{1,10}\])?(?: |$)"
    r"|\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\] "
    r"|\[[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d\] "
    r"|(?:kern|user|daemon|syslog) {0,4}:[a-z]{3,6} {0,4}: \S"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{6}[+-]\d\d:\d\d \S"
    r"|\d{1,3},\d{1,10},\d{1,16},[c+-]"
    r"|(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,6})?"
    r"|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})? [A-Z0-9+:-]{2,6}"
    r"|\d{9,11}\.\d{6}"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,]?\d{0,9}(?:Z|[+-]\d\d:?\d\d)?)"
    r" [\w.:-]{1,64} [\w./@-]{1,64}(?:\[\d{1,10}\])?: "
)

_BDF = r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] "

_STARTS = (
    Start("dmesg", _STAMP),
    Start("nvidia-smi topo -m", r"\s*GPU0\s", True, _topology, True),
    Start("nvidia-smi topo -p2p", r"\s*GPU0\s", True, _peer_access),
    Start("nvidia-smi -q", r"=+NVSMI LOG=+", True),
    Start(
        "nvidia-smi nvlink -s", r"GPU \d{1,3}: .{0,100}\(UUID: |NVML: Unable to retrieve NVLink information"
    ),
    Start("nvidia-smi", r"\| NVIDIA-SMI \d", True),
    Start("lspci -mm", _BDF + r'"|Slot:\s+[0-9a-f]{2,8}:[0-9a-f]{2}[:.]'),
    Start("lspci -v", _BDF + r'[^:"]{1,90}: '),
    Start("lspci -t", r"-(?:\+-)?\[[0-9a-f]{4,8}:[0-9a-f]{2}(?:-[0-9a-f]{2})?\]-"),
    Start("lscpu", r"Architecture:\s+\S", True, _has("CPU", "Byte Order", "Address sizes")),
    Start("numactl -H", r"available: \d{1,5} nodes? \(", True),
    Start("nvme smart-log", r"(?i:Smart Log for NVME device)", True),
    Start("nvme smart-log", r"critical_warning\s*: ", False, _has("temperature")),
    Start("nvme id-ctrl", r"NVME Identify Controller", True),
    Start("nvme id-ctrl", r"vid\s{1,20}: (?:0x)?[0-9a-f]+$", False, _has("ssvid")),
    Start("nvme error-log", r"Error Log Entries for device", True),
    Start("smartctl -a", r"smartctl \d{1,2}\.\d", True),
    Start(
        "smartctl -a",
        r"=== START OF (?:INFORMATION|SMART|READ SMART)|SMART overall-health|SMART/Health Information \(",
    ),
    Start("ethtool -S", r"NIC statistics:", True),
    Start("ethtool -l", r"Channel parameters for ", True),
    Start("ethtool -g", r"Ring parameters for ", True),
    Start("ethtool -c", r"Coalesce parameters for ", True),
    Start("ethtool -k", r"(?:Features|Offload parameters) for ", True),
    Start("ethtool -a", r"Pause parameters for ", True),
    Start("ethtool -T", r"Time stamping parameters for ", True),
    Start("ethtool --show-priv-flags", r"Private flags for ", True),
    Start("ethtool -i", r"driver: \S", True, _has("bus-info:", "firmware-version:")),
    Start("ethtool", r"Settings for \S+:$", True),
    Start("ibstat", r"CA '[^']{1,64}'"),
    Start("ibstatus", r"Infiniband device '"),
    Start("ip -s link", r"\d{1,5}: [\w.@:-]{1,40}: <[A-Z0-9_,-]*> mtu "),
    Start("udevadm info --export-db", r"P: /devices/"),
    Start("/proc/interrupts", r"\s*CPU\d{1,5}(?:\s+CPU\d{1,5})*\s*$", True),
    Start("/proc/meminfo", r"MemTotal:\s+\d+ kB", True),
    Start(
        "/proc/cpuinfo",
        r"processor\s{0,4}: \d",
        False,
        _has("vendor_id", "BogoMIPS", "cpu", "Features", "model"),
    ),
    Start(
        "cyclictest", r"T:\s?\d{1,5} \(\s*\d+\) P:\s?\d|policy: \w+: loadavg:|# /dev/cpu_dma_latency set to"
    ),
    Start("rtla timerlat", r"\s*Timer Latency\s*$|# RTLA timerlat"),
    Start("rtla osnoise", r"\s*Operating System Noise\s*$|# RTLA osnoise"),
    Start("edac-util", r"edac-util: |mc\d{1,3}: (?:csrow|noinfo|\d+ (?:Unc|C)orrected)"),
    Start("fabricmanager.log", r"\[[A-Z][a-z]{2} \d\d \d{4} \d\d:\d\d:\d\d\] \[[A-Z]{4,8}\] "),
    Start("irqbalance --debug", r"Isolated CPUs: [0-9a-f,]+$|Adaptive-ticks CPUs: [0-9a-f,]+$"),
    Start("dmidecode", r"# dmidecode \d", True),
    Start("tuned-adm active", r"Current active profile: "),
    Start("cpupower frequency-info", r"analyzing CPU \d"),
    Start("chronyc tracking", r"Reference ID\s+: ", True, _has("Stratum")),
)

_compiled: re.Pattern[str] | None = None


def _starts() -> re.Pattern[str]:
    global _compiled
    if _compiled is None:
        _compiled = re.compile(
            "|".join(f"(?P<s{i}>{start.pattern})" for i, start in enumerate(_STARTS)), re.ASCII
        )
    return _compiled


# -- what the first line does not tell -------------------------------------------------------

_SYSLOG = re.compile(
    r"[A-Z][a-z]{2} (?:[ \d]\d|\d{4}-\d\d-\d\d) \d\d:|\d{9,11}\.\d{6} |\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?!,)"
)


def _log(lines: list[str]) -> str:
    if _SYSLOG.match(lines[0]) and not any(" kernel: " in line[:200] for line in lines):
        return "syslog"
    return "dmesg"


def _gpu_list(lines: list[str]) -> str:
    told = any(line.lstrip().startswith(("Link ", "NVML: Unable to retrieve NVLink")) for line in lines)
    return "nvidia-smi nvlink -s" if told else "nvidia-smi -L"


def _pci(lines: list[str]) -> str:
    return "lspci -v" if any(line.startswith(("\t", "  ")) for line in lines) else "lspci"


def _interfaces(lines: list[str]) -> str:
    return "ip -s link" if any(line.lstrip().startswith("RX:") for line in lines) else "ip link"


def _per_cpu(lines: list[str]) -> str:
    softirqs = len(lines) > 1 and lines[1].lstrip().startswith(("HI:", "TIMER:"))
    return "/proc/softirqs" if softirqs else "/proc/interrupts"


_REFINE: dict[str, Callable[[list[str]], str]] = {
    "dmesg": _log,
    "nvidia-smi nvlink -s": _gpu_list,
    "lspci -v": _pci,
    "ip -s link": _interfaces,
    "/proc/interrupts": _per_cpu,
}


# -- XML and JSON ----------------------------------------------------------------------------

_STRUCTURED = frozenset(("nvidia-smi -q -x", "smartctl --json", "NCCL topology"))


def _structured(lines: list[str], first: int, end: int) -> tuple[str, int]:
    """The kind of an XML or JSON text that begins at ``first``, and the line after it."""
    begin = lines[first].lstrip()[:1]
    if begin == "<":
        head = "\n".join(lines[first : min(end, first + 15)])[:_LINE]
        if "<nvidia_smi_log" in head:
            return "nvidia-smi -q -x", _line_after(lines, first, end, "</nvidia_smi_log>")
        if re.search(r"^\s{0,20}<(?:system version=|cpu numaid=)", head, re.MULTILINE):
            return "NCCL topology", end
    elif begin == "{":
        kind = _json_kind("\n".join(lines[first:end]))
        if kind:
            return kind, end
    return "", first


def _line_after(lines: list[str], first: int, end: int, closing: str) -> int:
    for number in range(first, end):
        if closing in lines[number]:
            return number + 1
    return end


def _json_kind(text: str) -> str:
    from hwtune.text import strict_json

    try:
        said = strict_json.loads(text)
    except ValueError:
        return ""
    if not isinstance(said, dict):
        return ""
    if "smartctl" in said:
        return "smartctl --json"
    if "critical_warning" in said and ("percent_used" in said or "percentage_used" in said):
        return "nvme smart-log"
    if "vid" in said and "mn" in said and "oncs" in said:
        return "nvme id-ctrl"
    return ""


# -- outputs without their first line ---------------------------------------------------------

_FRAGMENTS = (
    (
        "dmesg",
        r"\s{0,2}(?:kernel: [A-Za-z({[]|NVRM: |nvidia(?:-(?:nvlink|uvm|modeset|peermem|drm))?[: ] ?[\w0]"
        r"|nvidia-nvswitch\d{0,2}: |mce: |EDAC \w|(?:pcieport|pci|nvme|mlx5_core) [0-9a-f]{4}:[0-9a-f]{2}:"
        r"|nvme nvme\d{1,4}: |Housekeeping: |Unknown kernel command line|Kernel command line: "
        r"|clocksource: |tsc: |x86/\w{1,20}: |DMAR: |AMD-Vi: |hrtimer: )",
    ),
    (
        "lspci -v",
        r"\s{0,40}(?:LnkCap2?|LnkSta2?|LnkCtl2?|DevCtl2?|DevSta|ACSCap|ACSCtl|UESta|CESta|UEMsk|CEMsk):\s",
    ),
    (
        "nvidia-smi -q",
        r"\s{0,8}(?:Remapped Rows|ECC Errors|Retired Pages|GPU Link Info)\s*$"
        r"|\s{0,8}Clocks (?:Event|Throttle) Reasons\s*$"
        r"|\s{0,8}(?:Performance State|Attached GPUs|Persistence Mode)\s{1,40}: ",
    ),
    (
        "smartctl -a",
        r"(?:Critical Warning|Available Spare|Percentage Used|Media and Data Integrity Errors):\s{2,}\S",
    ),
    ("nvme smart-log", r"(?:available_spare|percentage_used|num_err_log_entries)\s{1,40}: \d"),
)
# Enough to know a text by; a fragment is short.
_FRAGMENT_LINES = 400

# More than a file of sysctl.d sets: all that the kernel has.
_SETTING = re.compile(r"(?:abi|debug|dev|fs|kernel|net|user|vm)\.[\w./-]{1,120} = ")
_SETTINGS = 100

_ASSIGNMENT = re.compile(r"(?:export |declare -x )?([A-Za-z_][A-Za-z0-9_]{0,80})=")
_VARIABLES = re.compile(
    r"NCCL_|CUDA_|NVIDIA_|NVSHMEM_|RCCL_|HSA_|HIP_|ROCR_|UCX_|UCC_|OMPI_|FI_|OMP_|GOMP_|KMP_|MKL_"
    r"|TORCH_|PYTORCH_|VLLM_|RAY_|TRITON_|GLOO_|MELLANOX_|MLX5_|LD_|SLURM_|MALLOC_|PATH$|HOME$|USER$|SHELL$|PWD$|LANG$"
)
_ARGUMENTS = re.compile(
    r"(?:.*\s)?(?:BOOT_IMAGE|isolcpus|nohz_full|rcu_nocbs|root|console|hugepages|intel_iommu|amd_iommu)=\S"
)

_fragments: list[tuple[str, re.Pattern[str]]] = []


def _fragment(lines: list[str]) -> str:
    """The kind of lines that lack a first line, by a line that only one command prints."""
    if not _fragments:
        _fragments.extend((kind, re.compile(pattern, re.ASCII)) for kind, pattern in _FRAGMENTS)
    part = [line[:_LINE] for line in lines[:_FRAGMENT_LINES] if line.strip()]
    for kind, pattern in _fragments:
        if any(map(pattern.match, part)):
            return kind
    if part and _is_command_line(part):
        return "/proc/cmdline"
    if sum(map(bool, map(_SETTING.match, part))) >= _SETTINGS:
        return "sysctl -a"
    names = [match[1] for match in map(_ASSIGNMENT.match, part) if match]
    if names and 5 * len(names) >= 4 * len(part) and any(map(_VARIABLES.match, names)):
        return "environment"
    return ""


def _is_command_line(part: list[str]) -> bool:
    """One line of kernel arguments, or one that the terminal has wrapped."""
    if len(part) == 1:
        return ": " not in part[0] and _ARGUMENTS.match(part[0]) is not None
    return len(part) <= 10 and part[0].startswith("BOOT_IMAGE=")


# -- bytes to text ---------------------------------------------------------------------------

# Colours, cursor movements and titles of terminals (ECMA-48, xterm).
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)|[@-Z\\^_])")
_CONTROLS = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"}


def clean(content: bytes) -> str | None:
    """The text of a pasted file: without terminal escapes and control characters, with lines that
    end in "\\n"; None where it is binary."""
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        text = content.decode("utf-16", "replace")  # what PowerShell's redirection writes
    elif b"\0" in content:
        return None
    else:
        text = content.decode("utf-8-sig", "replace")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    text = without_endless(text)
    return text if _is_plain(text) else text.translate(_CONTROLS)


_PLAIN = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f-\x9f]*")


def _is_plain(text: str) -> bool:
    return _PLAIN.fullmatch(text) is not None
