"""jitter's report for a person: a line a CPU, then what took each one away, then what would mend it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune import __version__
from hwtune.jitter.analysis import time
from hwtune.jitter.results import FIT, UNFIT
from hwtune.report.clean import clean
from hwtune.report.layout import flow, paragraph
from hwtune.text.cpulist import show_list
from hwtune.tracing import title

if TYPE_CHECKING:
    from hwtune.jitter.results import CpuJitter, JitterReport
    from hwtune.report.terminal import Style

_CPUS_MAX = 8  # that are told of one by one: the worst
_STRIPS_MAX = 16  # CPUs that have a picture; the page has them all
_CAUSES_MAX = 8  # of a CPU; the JSON report has them all
_ROWS_MAX = 6
_FIRED_MAX = 6
_WORDS = {FIT: ("fit", "ok"), UNFIT: ("not fit", "error")}


def render(report: JitterReport, style: Style) -> str:
    """The whole report, ending with a newline."""
    lines = [*_headline(report, style), *_about(report, style), ""]
    lines += [style.paint(_head(), "bold"), *(_line(cpu, style) for cpu in report.cpus), ""]
    lines += _strips(report, style)
    shown = sorted(report.cpus, key=lambda cpu: (cpu.verdict == FIT, -cpu.stolen_ns))[:_CPUS_MAX]
    for cpu in sorted(shown, key=lambda cpu: cpu.cpu):
        lines += _cpu(cpu, report, style)
    if len(report.cpus) > len(shown):
        lines += [f"The other {len(report.cpus) - len(shown)} CPUs lost less (--format json has all).", ""]
    lines += _wakeups(report, style)
    lines += _rows(report, style)
    for note in report.trace.notes:
        lines += paragraph(f"Note: {clean(note)}.", 0, style)
    lines += _more(report, style)
    return "\n".join(lines) + "\n"


def _strips(report: JitterReport, style: Style) -> list[str]:
    """Time from left to right; the darker, the more was stolen."""
    if not report.cpus:
        return []
    lines = []
    for cpu in report.cpus[:_STRIPS_MAX]:
        places = min(style.width - 11, len(cpu.over_time_ns) // 2)
        pairs = [a + b for a, b in zip(cpu.over_time_ns[::2], cpu.over_time_ns[1::2], strict=True)][:places]
        slice_ns = max(cpu.observed_ns * 2 / len(cpu.over_time_ns), 1)
        lines.append(f"{cpu.cpu:>5}   |{''.join(_shade(ns / slice_ns) for ns in pairs)}|")
    legend = "stolen of each slice:  . 0.001 %  : 0.01 %  - 0.1 %  = 1 %  # 10 %"
    return [*lines, f"   {legend}"[: style.width], ""]


def _shade(share: float) -> str:
    """By decades: each mark from its share up."""
    for least, mark in ((0.1, "#"), (0.01, "="), (1e-3, "-"), (1e-4, ":"), (1e-5, ".")):
        if share >= least:
            return mark
    return " "


def _headline(report: JitterReport, style: Style) -> list[str]:
    parts = [f"hwtune {__version__}", clean(report.hostname or "unnamed machine")]
    parts.append(f"Linux {clean(report.kernel)}" if report.kernel else "kernel not known")
    parts.append(f"profile {clean(report.profile)}")
    fit = sum(1 for cpu in report.cpus if cpu.verdict == FIT)
    words = f"{fit} of {len(report.cpus)} fit"
    lines = flow(parts, style.width)
    if len(lines[-1]) + 3 + len(words) <= style.width:
        lines[-1] += words.rjust(style.width - len(lines[-1]))
    else:
        lines.append(words)
    return [style.paint(line, "bold") for line in lines]


def _about(report: JitterReport, style: Style) -> list[str]:
    clock = report.clock
    text = f"{report.duration_s:g} s a CPU{', one after the other' if report.one_by_one else ''}. "
    text += f"A hot thread may be gone for {time(report.gap_max_us * 1000)} at once, and for "
    text += (
        f"{report.stolen_max_pct:g} % of the time. Clock: {clock.source}, {clock.cost_ns:.0f} ns a reading."
    )
    lines = paragraph(text, 0, style)
    if report.interrupted:
        lines += paragraph("Interrupted: this is what was measured until then.", 0, style)
    return lines


def _head() -> str:
    cells = (("longest", 10), ("P99.9", 10), ("P99", 10), ("gaps/s", 10), ("stolen", 10), ("seen", 9))
    return f"{'CPU':>5}   {'verdict':<9}" + "".join(f"{name:>{width}}" for name, width in cells)


def _line(cpu: CpuJitter, style: Style) -> str:
    word, kind = _WORDS.get(cpu.verdict, ("unknown", "warning"))
    cells = [time(cpu.longest_ns), *("-" if p is None else time(p) for p in (cpu.p999_ns, cpu.p99_ns))]
    cells += [f"{cpu.gaps_per_second:,.{0 if cpu.gaps_per_second >= 100 else 1}f}", _share(cpu.stolen_share)]
    told = "".join(f"{cell:>10}" for cell in cells) + f"{_whole(cpu.coverage):>9}"
    return f"{cpu.cpu:>5}   {style.paint(f'{word:<9}', kind)}{told}"


def _share(share: float) -> str:
    percent = 100 * share
    if 0 < percent < 0.0001:
        return "<0.0001 %"
    return f"{percent:.2g} %" if percent < 10 else f"{percent:.1f} %"


def _whole(share: float) -> str:
    """Rounded down, so that 100 % is said of the whole only."""
    return f"{int(share * 1000) / 10:.1f} %"


def _cpu(cpu: CpuJitter, report: JitterReport, style: Style) -> list[str]:
    lines = []
    word, kind = _WORDS.get(cpu.verdict, ("unknown", "warning"))
    if cpu.verdict != FIT:
        lines.append(style.paint(f"CPU {cpu.cpu}: {word} for a hot thread", kind))
        for reason in cpu.reasons:
            lines += paragraph(clean(reason) + ".", 2, style, 4)
    elif cpu.causes:
        lines.append(style.paint(f"CPU {cpu.cpu}", "bold"))
    lines += _causes(cpu, style)
    if not report.trace.recorded:
        lines += _fired(cpu, style)
    if cpu.gaps_not_kept or cpu.gaps_not_asked:
        left_out = cpu.gaps_not_kept + cpu.gaps_not_asked
        lines += paragraph(f"{left_out:,} gaps were too many to be kept, or asked for their cause.", 2, style)
    return [*lines, ""] if lines else []


def _causes(cpu: CpuJitter, style: Style) -> list[str]:
    if not cpu.causes:
        return []
    lines = [f"  {'gaps':>9}{'longest':>11}{'stolen':>11}   mostly"]
    for culprit in cpu.causes[:_CAUSES_MAX]:
        share = culprit.total_ns / max(cpu.observed_ns, 1)
        head = f"  {culprit.outliers:>9,}{time(culprit.longest_ns):>11}{_share(share):>11}   "
        first, *rest = paragraph(clean(title(culprit.kind, culprit.name)), len(head), style) or [""]
        lines += [head + first[len(head) :], *rest]
    if len(cpu.causes) > _CAUSES_MAX:
        lines.append(f"  ... and {len(cpu.causes) - _CAUSES_MAX} more (--format json has them all)")
    return lines


def _fired(cpu: CpuJitter, style: Style) -> list[str]:
    """What the counters say: who fired, not which gap it made."""
    if cpu.counters is None:
        return []
    parts = [f"{clean(title(f.kind, f.name))} {f.count:,}" for f in cpu.counters.fired[:_FIRED_MAX]]
    if len(cpu.counters.fired) > _FIRED_MAX:
        parts.append(f"{len(cpu.counters.fired) - _FIRED_MAX} more")
    if cpu.counters.steal_ns:
        parts.append(f"{time(cpu.counters.steal_ns)} given to others by the hypervisor")
    if cpu.counters.smi:
        parts.append(f"{cpu.counters.smi} SMIs")
    if cpu.involuntary_switches:
        parts.append(f"the loop lost its CPU to other tasks {cpu.involuntary_switches:,} times")
    if not parts:
        return paragraph("Counters: nothing fired on it.", 2, style)
    return paragraph(f"Fired meanwhile, by the kernel's counters: {'; '.join(parts)}.", 2, style, 4)


def _wakeups(report: JitterReport, style: Style) -> list[str]:
    if not report.wakeups:
        return []
    first = report.wakeups[0]
    lines = [style.paint("Wake-ups by timer: how late", "bold")]
    cells = (("longest", 10), ("P99.9", 10), ("P99", 10), ("P50", 10), ("least", 10), ("missed", 9))
    lines.append(f"{'CPU':>5}   {'number':<9}" + "".join(f"{name:>{width}}" for name, width in cells))
    for cpu in report.wakeups:
        times = (cpu.longest_ns, cpu.p999_ns, cpu.p99_ns, cpu.p50_ns, cpu.min_ns)
        told = "".join(f"{'-' if ns is None else time(ns):>10}" for ns in times)
        lines.append(f"{cpu.cpu:>5}   {cpu.wakeups:<9,}{told}{cpu.missed:>9,}")
    how = f"SCHED_FIFO, priority {first.priority}" if first.fifo else f"normal priority ({clean(first.why)})"
    text = (
        f"Every {time(first.interval_ns)} by CLOCK_MONOTONIC, {how}; cyclictest --default-system measures "
        "the same (by itself it keeps CPUs from idling while it runs)."
    )
    return [*lines, *paragraph(text, 2, style), ""]


def _rows(report: JitterReport, style: Style) -> list[str]:
    """What doctor says of the rows that the causes point at."""
    if not report.rows:
        return []
    shown = [row for row in report.rows if row.outcome == "finding"][:_ROWS_MAX]
    lines = []
    if shown:
        lines.append(style.paint("What may mend it (`hwtune apply --only ROW`)", "bold"))
        for row in shown:
            lines.append(f"  {row.id}   CPU {show_list(row.cpus)}, {time(row.stolen_ns)}")
            lines += paragraph(clean(row.reason), 6, style)
        lines.append("")
    rest = [row for row in report.rows if row.outcome != "finding"]
    for outcome, words in (("unknown", "Not known"), ("not-applicable", "Not applicable")):
        alike: dict[str, list[str]] = {}
        for row in rest:
            if row.outcome == outcome:
                alike.setdefault(row.reason, []).append(row.id)
        for reason, ids in alike.items():
            lines += paragraph(f"{words}: {', '.join(ids)}: {clean(reason)}", 0, style, 2)
    fine = [row.id for row in rest if row.outcome == "ok"]
    if fine:
        lines += paragraph(f"Nothing found by: {', '.join(fine)}.", 0, style, 2)
    return [*lines, ""] if lines and lines[-1] else lines


def _more(report: JitterReport, style: Style) -> list[str]:
    if not report.trace.recorded:
        return paragraph(f"No gap has a cause of its own: {clean(report.trace.why)}.", 0, style)
    if not report.cpus:
        return []
    return paragraph("While it is traced an interruption takes a little longer than without.", 0, style)
