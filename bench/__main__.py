"""Run all benchmarks, or those named (`python -m bench doctor`), print a table, write build/bench.json."""

from __future__ import annotations

import compileall
import json
import sys
from pathlib import Path

from bench import doctor, engine, jitter, playbooks, queues, validate
from bench.timing import ROUNDS, Result

SOURCES = ("hwtune", "probes", "remediations")
PARTS = {
    "doctor": doctor.SUITES,
    "queues": queues.SUITES,
    "engine": (engine.suite,),
    "validate": validate.SUITES,
    "jitter": jitter.SUITES,
    "playbooks": playbooks.SUITES,
}


def main() -> int:
    # pip compiled the libraries that hwtune is compared with; an editable install does so when it is
    # first run, and never where PYTHONDONTWRITEBYTECODE is set
    for folder in SOURCES:
        compileall.compile_dir(folder, quiet=1)
    results: list[Result] = []
    for suite in (suite for name in sys.argv[1:] or PARTS for suite in PARTS[name]):
        for result in suite():
            print(line(result), flush=True)
            results.append(result)
    target = Path("build/bench.json")
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps([{**r._asdict(), "met": r.met} for r in results], indent=2) + "\n")
    print(f"{len(results)} comparisons of {ROUNDS} rounds at most, interleaved, medians; written to {target}")
    return 0 if all(r.met is not False for r in results) else 1


def line(result: Result) -> str:
    verdict = "" if result.met is None else ("met" if result.met else "MISSED")
    target = "" if result.target is None else f"target {result.target:g}"
    return (
        f"{result.suite:<9} {result.name:<46} {result.ours:8.1f} {result.unit:<6} "
        f"{result.ratio:6.2f} x {result.other_name} ({result.other:.1f} {result.unit})   {target} {verdict}"
    )


if __name__ == "__main__":
    sys.exit(main())
