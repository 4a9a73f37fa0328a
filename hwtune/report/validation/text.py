"""validate's report for a person: the verdict, the stages, what disturbed them, and what it points at."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hwtune import __version__
from hwtune.report.clean import clean
from hwtune.report.layout import flow, paragraph
from hwtune.text.cpulist import show_list
from hwtune.validate.baseline import UNTOLD, WORSE
from hwtune.validate.reading import us
from hwtune.validate.results import LEVELS, NAMES
from hwtune.validate.run import END_TO_END, STAGES

if TYPE_CHECKING:
    from hwtune.report.terminal import Style
    from hwtune.report.validation.published import About
    from hwtune.validate.baseline import Comparison
    from hwtune.validate.results import Latency, Results, Sla
    from hwtune.validate.run import Run

_CAUSES_MAX = 8  # lines of causes; the JSON report has them all
_HEAD = 12  # columns of what begins a line
_CELL = 8
_BOUND = "\x00"
_ROWS_MAX = 4  # rows of the table to look at, of one reading


def render(results: Results, about: About, style: Style) -> str:
    """The whole report, ending with a newline."""
    lines = [*_headline(results, about, style), *run_lines(results, style), ""]
    lines += _placement(results, style)
    lines += _table(results, style)
    lines += [line for entry in entries(results) for line in _entry(*entry, style)]
    lines += ["", *_threads(results.run, style)]
    lines += _outliers(results, style)
    lines += _reading(results, style)
    return "\n".join(lines) + "\n"


def _headline(results: Results, about: About, style: Style) -> list[str]:
    parts = [f"hwtune {__version__}", clean(about.hostname or "unnamed machine")]
    parts.append(f"Linux {clean(about.kernel)}" if about.kernel else "kernel not known")
    parts.append(f"engine {clean(results.run.engine)}")
    words = verdict(results)
    lines = flow(parts, style.width)
    if len(lines[-1]) + 3 + len(words) <= style.width:
        lines[-1] += words.rjust(style.width - len(lines[-1]))
    else:
        lines.append(words)
    return [style.paint(line, "bold") for line in lines]


def verdict(results: Results) -> str:
    """In a few words, the SLA and the baseline."""
    if results.run.failure:
        return "failed"
    parts = [{True: "SLA met", False: "SLA missed", None: "SLA cannot be told"}[results.sla.met]]
    if results.comparison is not None:
        parts.append(f"{results.comparison.verdict} than before" if results.worse else "")
    return ", ".join(part for part in parts if part)


def run_lines(results: Results, style: Style) -> list[str]:
    run = results.run
    told = f"{clean(run.arrivals)} arrivals, {_count(run.rate)} ticks a second, {run.duration_s:.3g} s"
    told += f", after {run.warmup:,} of warm-up." if run.warmup else "."
    lines = paragraph(told, 0, style)
    if run.interrupted:
        lines += paragraph("Interrupted: this is what was measured until then.", 0, style)
    if run.failure:
        lines += paragraph(f"The engine failed, which ended the run: {clean(run.failure)}", 0, style)
    return lines


def _placement(results: Results, style: Style) -> list[str]:
    placed = results.placement
    lines = []
    for roles, cpu in placed.threads:
        lines.append(f"  CPU {cpu:<6}{' + '.join(roles)}")
    lines.append(f"  CPU {show_list(placed.rest):<6}the rest of this process")
    for sentence in placed.why:
        lines += paragraph(clean(sentence), 2, style)
    for sentence in placed.given_up:
        lines += paragraph(f"Given up: {clean(sentence)}", 2, style, 4)
    return [*lines, ""]


# -- the table -------------------------------------------------------------------------------


def _table(results: Results, style: Style) -> list[str]:
    titles = [*(NAMES[name] for name, _ in LEVELS), "max", "budget"]
    head = f"{'us':<{_HEAD}}{'count':>{_CELL + 4}}" + "".join(f"{t:>{_CELL}}" for t in titles)
    lines = [style.paint(head, "bold")]
    rows = [(stage, results.stages[stage]) for stage in STAGES] + [(END_TO_END, results.end_to_end)]
    for name, latency in rows:
        line = _table_row(name, latency)
        lines.append(style.paint(line, "error") if latency.over_budget_us is not None else line)
    return [*lines, *_unknown(results.end_to_end, style), ""]


def _table_row(name: str, latency: Latency) -> str:
    values = [getattr(latency, f"{level}_us") for level, _ in LEVELS]
    cells = [cell(value) for value in (*values, latency.max_us, latency.budget_us)]
    return f"{name:<{_HEAD}}{latency.count:>{_CELL + 4},}" + "".join(f"{c:>{_CELL}}" for c in cells)


def cell(value: float | None) -> str:
    """Microseconds in seven characters."""
    if value is None:
        return "-"
    if value >= 999_999.5:
        return f"{value / 1e6:.1f}s"
    for bound, places in ((9.995, 2), (99.95, 1)):
        if value < bound:
            return f"{value:.{places}f}"
    return f"{value:,.0f}"


def _unknown(latency: Latency, style: Style) -> list[str]:
    """Why there are dashes, for the lowest percentile that has one."""
    if not latency.unknown:
        return []
    name, why = next(iter(latency.unknown.items()))
    return paragraph(f"{NAMES[name.removesuffix('_us')]} is not told: {why}.", 2, style)


# -- entries ---------------------------------------------------------------------------------


class Entry(NamedTuple):
    """``kind``: "error", "warning" or "", as the text is painted; ``says``: sentences."""

    name: str
    kind: str
    says: str


def entries(results: Results) -> list[Entry]:
    """Everything of the whole run that is one thing and its value, the verdicts first."""
    run = results.run
    found = [_sla(results.sla)]
    if results.budget.stages:
        found.append(_budget(results))
    if results.comparison is not None:
        found.append(baseline(results.comparison))
    lost = f"{results.missing:,}" if results.missing else "none"
    came = f"{_count(results.throughput)} ticks a second; {run.completed:,} of {run.due:,} due, {lost} lost."
    found.append(Entry("throughput", "warning" if results.missing else "", came))
    found.append(_queues(run))
    if run.batches:
        found.append(Entry("batches", "", _batches(run)))
    if run.gpu is not None:
        from hwtune.report.validation.gpu import sentences

        found += [Entry(*told) for told in sentences(run.gpu)]
    found.append(_drift(results))
    refused = f"{run.orders_sent:,} sent with the warm-up's, {run.orders_failed:,} refused by the sink."
    found.append(Entry("orders", "warning" if run.orders_failed else "", refused))
    why = f": {run.memory_why}" if run.memory_why else ""
    locked = "locked" if run.memory_locked else "not locked"
    found.append(Entry("memory", "" if run.memory_locked else "warning", f"{locked}{why}."))
    clock = f"{run.clock}, {run.clock_overhead_ns:.0f} ns a reading ({run.clock_why})."
    found.append(Entry("clock", "", clock))
    return [Entry(e.name, e.kind, clean(e.says)) for e in found]


def _sla(sla: Sla) -> Entry:
    if sla.met is None:
        return Entry("SLA", "warning", f"cannot be told: {sla.why}.")
    if sla.p99_us is None:
        return Entry("SLA", "error", f"missed: {sla.why}.")
    told = f"P99 {us(sla.p99_us)} of {us(sla.limit_us)}: {'met' if sla.met else 'missed'}"
    if sla.low_us is None or sla.high_us is None:
        told += f". How sure that is cannot be told: {sla.why}."
    else:
        told += f", with 95 % between {us(sla.low_us)} and {us(sla.high_us)}."
        if not sla.certain:
            told += " The limit lies between these: a longer run would tell for sure."
    return Entry("SLA", "" if sla.met else "error", told)


def _budget(results: Results) -> Entry:
    budget = results.budget
    over = [
        f"{n} by {us(s.over_budget_us)}" for n, s in results.stages.items() if s.over_budget_us is not None
    ]
    told = f"overspent at P99: {', '.join(over)}" if over else "none that is overspent at P99"
    if budget.planned_us > budget.sla_us * 1.0001:
        told += f"; the stages' budgets sum to {us(budget.planned_us)}, more than the SLA"
    return Entry("budget", "warning" if over else "", f"{told} ({budget.source}).")


def baseline(comparison: Comparison) -> Entry:
    told = f"{comparison.verdict}, limit {comparison.limit_pct:g} %"
    if comparison.before_us is not None and comparison.now_us is not None:
        told += f": P99 {us(comparison.before_us)} then, {us(comparison.now_us)} now"
    if comparison.change_pct is not None:
        told += f", {comparison.change_pct:+.1f} %"
    if comparison.low_pct is not None and comparison.high_pct is not None:
        told += f" (95 %: {comparison.low_pct:+.1f} to {comparison.high_pct:+.1f})"
    told += f". {comparison.why[:1].upper()}{comparison.why[1:]}." if comparison.why else "."
    for clause in comparison.differs:
        told += f" Made on {clause}."
    kind = {WORSE: "error", UNTOLD: "warning"}.get(comparison.verdict, "")
    return Entry("baseline", kind, clean(told))


def _queues(run: Run) -> Entry:
    queues = (("tick", run.tick_queue), ("order", run.order_queue))
    told = ", ".join(
        f"{name} {q.high_watermark:,} of {q.capacity:,}" + (f" ({q.dropped:,} dropped)" if q.dropped else "")
        for name, q in queues
    )
    return Entry("queues", "warning" if any(q.dropped for _, q in queues) else "", f"filled at most: {told}.")


def _drift(results: Results) -> Entry:
    drift = results.drift
    if not drift.direction or drift.change_pct is None:
        return Entry("drift", "", f"not told: {drift.why}.")
    if drift.direction == "none":
        return Entry("drift", "", f"none that shows (P99 {drift.change_pct:+.1f} % over the run).")
    return Entry("drift", "warning", f"P99 {drift.direction}, {drift.change_pct:+.1f} % over the run.")


def _batches(run: Run) -> str:
    total = sum(run.batches.values())
    rows = sum(size * count for size, count in run.batches.items())
    return f"{total:,}, of {rows / max(total, 1):.3g} rows in the mean, {max(run.batches):,} at most."


def _threads(run: Run, style: Style) -> list[str]:
    width = max([_HEAD, *(len(" + ".join(t.roles)) + 2 for t in run.threads)])
    titles = ("CPU", "faults", "major", "slept", "preempted", "moved")
    lines = [style.paint(f"{'thread':<{width}}" + "".join(f"{t:>10}" for t in titles), "bold")]
    for t in run.threads:
        moved = "-" if t.migrations is None else f"{t.migrations:,}"
        counts = (t.minor_faults, t.major_faults, t.voluntary_switches, t.involuntary_switches)
        cells = [str(t.cpu), *(f"{c:,}" for c in counts), moved]
        lines.append(f"{' + '.join(t.roles):<{width}}" + "".join(f"{c:>10}" for c in cells))
    for t in run.threads:
        if t.counters:
            told = ", ".join(
                f"{clean(name)} {count / max(run.completed, 1):,.1f}" for name, count in t.counters.items()
            )
            lines += paragraph(f"{' + '.join(t.roles)}, a tick: {told}.", 2, style)
    missing = {clean(t.counters_missing) for t in run.threads if not t.counters and t.counters_missing}
    for why in sorted(missing):
        lines += paragraph(f"No hardware counters: {why}.", 2, style)
    return [*lines, ""]


# -- outliers --------------------------------------------------------------------------------


def _outliers(results: Results, style: Style) -> list[str]:
    run, told = results.run, results.attribution
    threshold = us(run.outlier_threshold_ns / 1000)
    if not run.outliers_seen:
        return [*_entry("outliers", "", f"none above {threshold}.", style), ""]
    kept = f", the slowest {len(run.outliers):,} kept" if len(run.outliers) < run.outliers_seen else ""
    lines = _entry("outliers", "", f"{run.outliers_seen:,} above {threshold}{kept}.", style)
    if told.causes:
        lines += paragraph(
            f"Of {sum(c.outliers for c in told.causes):,}, most of the time went to:", 2, style
        )
        for cause in told.causes[:_CAUSES_MAX]:
            rows = ", ".join(cause.rows[:2])
            line = f"{cause.outliers:>8,}   {clean(cause.name)}   longest {us(cause.longest_us)}"
            lines += paragraph(line + (f"   {rows}" if rows else ""), 0, style, 11)
        if len(told.causes) > _CAUSES_MAX:
            lines.append(f"    ... and {len(told.causes) - _CAUSES_MAX} more (--format json has them all)")
    else:
        stages: dict[str, int] = {}
        for outlier in results.outliers:
            stages[outlier.stage] = stages.get(outlier.stage, 0) + 1
        shown = ", ".join(
            f"{stage} {count:,}" for stage, count in sorted(stages.items(), key=lambda i: -i[1])
        )
        if shown:
            lines += paragraph(f"Most of their time was in: {shown}.", 2, style)
    if told.method != "trace":
        lines += paragraph(f"Not matched to what else happened: {clean(told.why)}.", 2, style)
    for sentence in told.fired[:_CAUSES_MAX]:
        lines += paragraph(clean(sentence), 2, style, 4)
    for sentence in told.notes:
        lines += paragraph(f"Note: {clean(sentence)}", 2, style)
    return [*lines, ""]


# -- reading ---------------------------------------------------------------------------------


def _reading(results: Results, style: Style) -> list[str]:
    lines = [style.paint("How to read it", "bold")]
    for reading in results.readings:
        lines += paragraph(f"- {clean(reading.says)}", 2, style, 4)
        if reading.look:
            # kept together by a space that is none
            only = " ".join(f"--only{_BOUND}{row}" for row in reading.look[:_ROWS_MAX])
            wrapped = paragraph(f"hwtune{_BOUND}doctor {only}", 4, style, 6)
            lines += [line.replace(_BOUND, " ") for line in wrapped]
    return lines


def _entry(name: str, kind: str, says: str, style: Style) -> list[str]:
    """A line with a name before it; further lines are indented."""
    lines = paragraph(says, _HEAD, style)
    head = f"{name:<{_HEAD}}"
    first = (style.paint(head, kind) if kind else head) + lines[0].lstrip()
    return [first, *lines[1:]]


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
