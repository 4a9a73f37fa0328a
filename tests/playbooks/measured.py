#!/opt/hwtune/bin/python
"""hwtune on a light host: everything is the real one's, but `validate` measures nothing.

What it "measures" is in /etc/measured.json, {"tuned": P99 in us, "untuned": P99 in us}, by whether anything
of hwtune's is in force. Reports (test_reports.py holds them against hwtune's schema) and exit statuses are as
hwtune's own. Which runs there were is kept in /var/log/measured, a line each.
"""

import json
import os
import sys

STAGES = ("generate", "tick-queue", "features", "inference", "order-queue", "order")
COUNT = 100_000


def main():
    if sys.argv[1:2] != ["validate"]:
        os.execv("/opt/hwtune/bin/hwtune", ["/opt/hwtune/bin/hwtune", *sys.argv[1:]])
    options = dict(zip(sys.argv[2::2], sys.argv[3::2], strict=True))
    with open("/var/log/measured", "a") as file:
        file.write(" ".join(sys.argv[1:]) + "\n")
    with open("/etc/measured.json") as file:
        figures = json.load(file)
    p99 = figures["tuned" if os.path.exists("/etc/sysctl.d/99-zz-hwtune.conf") else "untuned"]
    before = None
    if "--baseline" in options:
        with open(options["--baseline"]) as file:
            before = json.load(file)["end_to_end"]["p99_us"]
    limit_pct = float(options.get("--max-regression", "10%").rstrip("%"))
    made = report(p99, float(options.get("--sla-us", 3200)), options.get("--baseline", ""), before, limit_pct)
    print(json.dumps(made))
    worse = made["baseline"] is not None and made["baseline"]["verdict"] == "worse"
    return 1 if worse or not made["sla"]["met"] else 0


def report(p99, limit, path, before, limit_pct):
    """As hwtune.report.validation.published.ValidateReport is written."""
    return {
        "schema_version": "1",
        "tool": {"name": "hwtune", "version": "0.1.0"},
        "host": {"hostname": os.uname().nodename, "kernel": os.uname().release, "captured_at": None},
        "engine": "cpu",
        "model": "",
        "arrivals": {"kind": "poisson", "name": "poisson", "rate": 10000.0, "digest": "", "seed": 1},
        "cpus": {"generator": 0, "compute": 1, "orders": 0},
        "placement": {
            "cpus": {"generator": 0, "compute": 1, "orders": 0},
            "rest": [0],
            "requested": False,
            "why": [],
            "given_up": ["there are two CPUs"],
        },
        "duration_s": 10.0,
        "warmup": 10_000,
        "interrupted": False,
        "failure": "",
        "due": COUNT,
        "completed": COUNT,
        "missing": 0,
        "throughput": COUNT / 10,
        "end_to_end": latency(p99, limit),
        "stages": {stage: latency(p99 / len(STAGES), None) for stage in STAGES},
        "sla": {
            "limit_us": limit,
            "p99_us": p99,
            "low_us": p99,
            "high_us": p99,
            "met": p99 <= limit,
            "certain": True,
            "why": "",
        },
        "budget": {"source": "built in", "stages_us": {}, "planned_us": 0.0, "sla_us": limit},
        "drops": 0,
        "queues": {name: {"capacity": 1024, "high_watermark": 3, "dropped": 0} for name in QUEUES},
        "queue_high_watermark": dict.fromkeys(QUEUES, 3),
        "page_faults": {"minor": 0, "major": 0},
        "context_switches": {"voluntary": 0, "involuntary": 2},
        "migrations": 0,
        "threads": [],
        "batches": {"1": COUNT},
        "orders": {"sent": COUNT, "failed": 0},
        "memory": {"locked": True, "why": ""},
        "clock": {"source": "tsc", "why": ""},
        "clock_overhead_ns": 10.0,
        "outlier_threshold_us": limit / 10,
        "outliers_seen": 0,
        "outliers": [],
        "outlier_causes": {"method": "none", "why": "", "causes": [], "fired": [], "notes": []},
        "drift": {"direction": "none", "change_pct": 0.0, "p_value": 1.0, "parts": 8, "why": ""},
        "baseline": None if before is None else comparison(p99, path, before, limit_pct),
        "reading": [{"rule": "tail", "says": "P50 is low and P99 is high.", "look": ["memory.dirty-limits"]}],
        "histograms": {},
        "windows": {"length_s": 1.0, "histograms": []},
        "gpu": None,
    }


QUEUES = ("tick-queue", "order-queue")


def latency(p99, budget):
    over = None if budget is None or p99 <= budget else p99 - budget
    return {
        "count": COUNT,
        "p50_us": p99 / 4,
        "p90_us": p99 / 2,
        "p99_us": p99,
        "p999_us": p99 * 2,
        "p9999_us": p99 * 3,
        "max_us": p99 * 4,
        "mean_us": p99 / 3,
        "p99_low_us": p99,
        "p99_high_us": p99,
        "p99_unknown": "",
        "unknown": {},
        "budget_us": budget,
        "over_budget_us": over,
    }


def comparison(p99, path, before, limit_pct):
    change = 100 * (p99 / before - 1)
    return {
        "baseline": path,
        "made_at": None,
        "limit_pct": limit_pct,
        "before_us": before,
        "now_us": p99,
        "change_pct": change,
        "low_pct": change,
        "high_pct": change,
        "verdict": "worse" if change > limit_pct else "not worse",
        "why": "",
        "differs": [],
    }


if __name__ == "__main__":
    sys.exit(main())
