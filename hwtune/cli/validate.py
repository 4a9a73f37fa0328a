"""hwtune validate: the proof, by measuring."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

from hwtune.cli.duration import seconds
from hwtune.cli.options import emit, need_output, output_option
from hwtune.errors import EXIT_FINDINGS, EXIT_OK, EXIT_TOOL, ToolError, UsageError

if TYPE_CHECKING:
    from hwtune.report.validation.published import About
    from hwtune.validate.arrivals import Arrivals
    from hwtune.validate.baseline import Baseline
    from hwtune.validate.budget import Budget
    from hwtune.validate.gpu.results import Options
    from hwtune.validate.measure import Request
    from hwtune.validate.results import Results

FORMATS = ("text", "json", "junit", "prometheus", "html")
ENGINES = ("auto", "cpu", "cuda", "null", "onnx", "tensorrt")
_ON_GPU = ("cuda", "tensorrt")
_RATE = 10_000.0
_DURATION_S = 10.0
_SHORTEST_S = 0.001
_LONGEST_WARMUP_S = 600.0
_TICK_S = 1e-6


def percent(text: str) -> float:
    """Of "10%" or "10". Raises ``UsageError``."""
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1000:
        raise UsageError(f"--max-regression takes a percentage like 10%, not {text[:40]!r}")
    return value


@click.command("validate")
@click.option(
    "--engine",
    default="auto",
    show_default=True,
    metavar="NAME",
    help="cpu: the embedded perceptron; cuda, tensorrt: the same on a GPU. onnx: your model, with --onnx. "
    "null: none, for the pipeline alone. auto: as --plan or --onnx say, else cpu.",
)
@click.option(
    "--onnx",
    metavar="FILE",
    help="Score with this ONNX model of 64 features (needs onnxruntime, or --engine tensorrt).",
)
@click.option("--plan", metavar="FILE", help="Score with this TensorRT plan.")
@click.option(
    "--gpu", type=click.IntRange(0, 63), metavar="N", help="CUDA's number of the GPU.  [default: 0]"
)
@click.option(
    "--streams",
    type=click.IntRange(1, 16),
    metavar="N",
    help="Batches under way on the GPU at once.  [default: 1]",
)
@click.option(
    "--precision",
    type=click.Choice(("fp32", "fp16", "int8")),
    help="Of the embedded model on the GPU.  [default: fp32]",
)
@click.option("--rate", type=float, metavar="N", help=f"Ticks a second.  [default: {_RATE:,.0f}]")
@click.option("--duration", metavar="TIME", help="How long to measure: 10s, 30m, 1h.  [default: 10s]")
@click.option("--warmup", default="1s", show_default=True, metavar="TIME", help="Left out of all figures.")
@click.option(
    "--arrivals",
    default="poisson",
    show_default=True,
    metavar="fixed|poisson|burst|FILE",
    help="When ticks are due; FILE: recorded ticks with their times, CSV or .npy.",
)
@click.option("--seed", type=click.IntRange(0, (1 << 64) - 1), default=1, show_default=True, metavar="N")
@click.option("--sla-us", type=float, metavar="N", help="Limit of P99 end to end.  [default: 3200]")
@click.option("--budget", metavar="FILE", help="TOML: microseconds at P99 by stage.")
@click.option("--baseline", metavar="FILE", help="Compare with an earlier run's --format json.")
@click.option("--max-regression", default="10%", show_default=True, metavar="PCT", help="Of P99.")
@click.option(
    "--cpus",
    default="auto",
    show_default=True,
    metavar="LIST",
    help="CPUs of generator, compute and orders (2,4,6); two or one to share them.",
)
@click.option(
    "--outlier-us",
    type=float,
    metavar="N",
    help="Keep and match ticks slower than this.  [default: twice the warm-up's P99, the SLA at most]",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="Report format.",
)
@output_option
def command(
    engine: str,
    onnx: str | None,
    plan: str | None,
    gpu: int | None,
    streams: int | None,
    precision: str | None,
    rate: float | None,
    duration: str | None,
    warmup: str,
    arrivals: str,
    seed: int,
    sla_us: float | None,
    budget: str | None,
    baseline: str | None,
    max_regression: str,
    cpus: str,
    outlier_us: float | None,
    format_: str,
    output: str | None,
) -> int:
    """Run market ticks through the path of a trading host and measure every stage.

    Generator -> queue -> features -> inference -> queue -> orders, each a pinned thread. Latency counts
    from the time at which a tick was due. Exit status: 0 within the SLA and the baseline, 1 not so, 3 where
    the run could not be made or was too short to tell.
    """
    import time

    from msgspec import structs

    name = _engine(engine, onnx, plan)
    on_gpu = _gpu(name, gpu, streams, precision, own=bool(onnx or plan))
    limit_pct = percent(max_regression)
    from hwtune.validate import arrivals as sources
    from hwtune.validate import budget as budgets
    from hwtune.validate import measure

    targets = budgets.load(budget, sla_us)
    source = sources.load(arrivals, rate, _RATE)
    model = measure.model_digest(plan if onnx is None else onnx)
    earlier = _baseline(baseline, name, model, source)
    request = _request(name, onnx, source, duration, warmup, seed, cpus, _threshold(outlier_us), targets)
    request = structs.replace(request, plan=plan, gpu=on_gpu)
    need_output(output)
    started = time.time()
    results = _measured(request, targets)
    about = _about(request, model, started)
    _compare(results, earlier, about, request, limit_pct)
    emit(_document(format_, results, about, output), output)
    return _status(results)


# -- what is asked ---------------------------------------------------------------------------


def _engine(engine: str, onnx: str | None, plan: str | None) -> str:
    """The engine's name; what auto comes to is known before anything is measured."""
    if engine not in ENGINES:
        from difflib import get_close_matches

        near = get_close_matches(engine, ENGINES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(ENGINES)}"
        raise UsageError(f"there is no engine {engine[:40]!r}; {hint}")
    if plan is not None and (onnx is not None or engine not in ("auto", "tensorrt")):
        other = "--onnx" if onnx is not None else f"--engine {engine}"
        raise UsageError(f"--plan does not go with {other}")
    if onnx is not None and engine not in ("auto", "onnx", "tensorrt"):
        raise UsageError(f"--onnx does not go with --engine {engine}")
    if onnx is None and engine == "onnx":
        raise UsageError("--engine onnx needs a model: --onnx FILE")
    if plan is not None:
        return "tensorrt"
    if onnx is not None:
        return "onnx" if engine == "auto" else engine
    return "cpu" if engine == "auto" else engine


def _gpu(engine: str, index: int | None, streams: int | None, precision: str | None, own: bool) -> Options:
    given = {"--gpu": index, "--streams": streams, "--precision": precision}
    named = next((option for option, value in given.items() if value is not None), None)
    if named is not None and engine not in _ON_GPU:
        raise UsageError(f"{named} is for engines on a GPU ({', '.join(_ON_GPU)}), not for --engine {engine}")
    if own and precision is not None:
        raise UsageError("--precision is of the embedded model; a model of your own has the one that it has")
    from hwtune.validate.gpu.results import Options

    return Options(index or 0, streams or 1, precision or "fp32")


def _threshold(outlier_us: float | None) -> float:
    """0 leaves it to the warm-up."""
    if outlier_us is None:
        return 0.0
    if not 0 < outlier_us <= 1e8:
        raise UsageError(f"--outlier-us is a number of microseconds above 0, not {outlier_us:g}")
    return outlier_us


def _baseline(path: str | None, engine: str, model: str, source: Arrivals) -> Baseline | None:
    """Read and refused before anything is measured."""
    if path is None:
        return None
    from hwtune.validate import baseline

    found = baseline.load(path)
    baseline.refuse(found, engine, model, source)
    return found


def _request(
    engine: str,
    onnx: str | None,
    source: Arrivals,
    duration: str | None,
    warmup: str,
    seed: int,
    cpus: str,
    outlier_us: float,
    targets: Budget,
) -> Request:
    from hwtune.validate import surroundings
    from hwtune.validate.measure import Request

    asked = _DURATION_S if duration is None else seconds(duration, "--duration", _SHORTEST_S)
    warmup_s = seconds(warmup, "--warmup", most_s=_LONGEST_WARMUP_S)
    whole = source.span_s
    if whole is not None:
        # to the end of the recording, with its last tick
        asked = min(whole + _TICK_S, asked if duration is not None else math.inf)
    placed = surroundings.place(None if cpus == "auto" else cpus)
    return Request(engine, onnx, source, asked, warmup_s, seed, placed, outlier_us, targets.sla_us)


# -- what comes of it ------------------------------------------------------------------------


def _measured(request: Request, targets: Budget) -> Results:
    from hwtune.cli.progress import progress
    from hwtune.validate.measure import measure

    with progress(request.duration_s) as shown:
        run, attribution = measure(request, shown)
    from hwtune.validate.results import judge

    return judge(run, request.placement, targets, attribution)


def _about(request: Request, model: str, started: float) -> About:
    import os

    from hwtune.report.validation.published import About

    host = os.uname()
    source = request.arrivals
    return About(host.nodename, host.release, started, model, source.name, source.digest, request.seed)


def _compare(
    results: Results, earlier: Baseline | None, about: About, request: Request, limit_pct: float
) -> None:
    """With the baseline; then the reading, which looks at everything."""
    from hwtune.validate import reading

    if earlier is not None:
        from hwtune.validate import baseline

        baseline.refuse(earlier, results.run.engine, about.model, request.arrivals)
        results.comparison = baseline.compare(earlier, results.run, about.hostname, about.kernel, limit_pct)
    results.readings = reading.read(results)


def _document(format_: str, results: Results, about: About, output: str | None) -> str | bytes:
    """Each format is imported when it is asked for."""
    if format_ == "text":
        from hwtune.report.terminal import style_for
        from hwtune.report.validation import text

        return text.render(results, about, style_for(output))
    if format_ == "json":
        from hwtune.report.published import encode
        from hwtune.report.validation.published import publish

        return encode(publish(results, about))
    if format_ == "junit":
        from hwtune.report.validation import junit

        return junit.render(results, about)
    if format_ == "prometheus":
        from hwtune.report.validation import prometheus

        return prometheus.render(results, about)
    from hwtune.report.validation import html

    return html.render(results, about)


def _status(results: Results) -> int:
    """A verdict that cannot be told is no success."""
    if results.run.failure:
        raise ToolError(f"the engine failed: {results.run.failure}")
    if results.sla.met is False or results.worse:
        return EXIT_FINDINGS
    if results.sla.met is None:
        click.echo(f"hwtune: whether the SLA is met cannot be told: {results.sla.why}", err=True)
        return EXIT_TOOL
    return EXIT_OK
