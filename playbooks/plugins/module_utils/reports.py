# Copyright: the hwtune developers
# Apache License 2.0 (see https://www.apache.org/licenses/LICENSE-2.0)
"""What a report of hwtune's means for a task: its result, whether it failed and why. Reads dictionaries
and returns them; runs nothing."""

SEVERITIES = ("info", "warning", "error")
TOLD = 3  # how many of a kind a message names

IN_FORCE, PENDING = "in-force", "pending-reboot"


class Reading:
    """``result``: what the task returns, ``changed`` and ``msg`` among it; ``failure``: why the task
    failed and what to do, or ""."""

    def __init__(self, result, failure="", warnings=(), diff=()):
        self.result = result
        self.failure = failure
        self.warnings = list(warnings)
        self.diff = list(diff)


# -- doctor --------------------------------------------------------------------------------------


def diagnosed(report, fail_on):
    findings = [_finding(row, found) for row in report["rows"] for found in row["findings"]]
    findings.sort(key=lambda found: -SEVERITIES.index(found["severity"]))
    unknown = [dict(gap, row=row["id"]) for row in report["rows"] for gap in row["unknowns"]]
    worst = findings[0]["severity"] if findings else "none"
    summary = report["summary"]
    result = {
        "changed": False,
        "msg": "{}, {} unknown".format(_severities(summary["by_severity"]), summary["unknown"]),
        "summary": summary,
        "worst": worst,
        "findings": findings,
        "unknown": unknown,
        "defects": report["defects"],
        "host": report["host"],
    }
    failure = ""
    if fail_on != "never":
        bad = [f for f in findings if SEVERITIES.index(f["severity"]) >= SEVERITIES.index(fail_on)]
        if bad:
            step = "state applied in check mode with --diff, or `hwtune explain {}`".format(bad[0]["row"])
            failure = "{} at or above {}: {}. Next: {}".format(
                count(len(bad), "finding"),
                fail_on,
                listed("{} ({}): {}".format(f["row"], f["subject"], f["message"].rstrip(".")) for f in bad),
                step,
            )
    warnings = [
        f"a part of hwtune failed on this host, and its report lacks that part: {_one_line(defect)}"
        for defect in report["defects"]
    ]
    return Reading(result, failure, warnings)


def _finding(row, found):
    return {
        "row": row["id"],
        "severity": found["severity"] or row["severity"],
        "scope": row["scope"],
        "title": row["title"],
        "subject": found["subject"],
        "message": found["message"],
        "evidence": found["evidence"],
        "mendable": bool(found["changes"]),
        "advice": found["advice"],
    }


def _severities(by_severity):
    names = {"error": "error", "warning": "warning", "info": "note"}
    return ", ".join(count(by_severity.get(each, 0), names[each]) for each in reversed(SEVERITIES))


def _one_line(value):
    if isinstance(value, dict):
        return ", ".join(f"{key} {value[key]}" for key in sorted(value) if key != "traceback")
    return str(value)


# -- apply ---------------------------------------------------------------------------------------


def applied(report, strict):
    changes = report["changes"]
    by_status = {}
    for change in changes:
        by_status.setdefault(change["status"], []).append(change)
    made = by_status.get("changed", []) + by_status.get("planned", [])
    failed, refused = by_status.get("failed", []), by_status.get("not-allowed", [])
    result = {
        "changed": report["changed"],
        "set": report["set"],
        "changes": changes,
        "failed_changes": failed,
        "not_allowed": refused,
        "files": [_file(f) for f in report["files"]],
        "commands": report["commands"],
        "problems": report["problems"],
        "reboot_required": report["reboot_required"],
    }
    verb = "to make" if report["check"] else "made"
    result["msg"] = (
        "{} {}".format(count(len(made), "change"), verb) if report["changed"] else "nothing to change"
    )
    if report["reboot_required"]:
        result["msg"] += ", of which some take effect at the next boot"
    warnings, failure = [], ""
    if refused:
        takes = sorted({change["disruption"] or change["reason"] for change in refused})
        sentence = "{} not allowed here ({}): {}. Next: name in `allow` what may happen to this host".format(
            count(len(refused), "change is", "changes are"),
            ", ".join(takes),
            listed(_named(change) for change in refused),
        )
        if strict:
            failure = sentence
        else:
            warnings.append(sentence)
    if failed or report["problems"]:
        failure = _failed_apply(report, failed, made)
    return Reading(result, failure, warnings, _diff(made, report["files"]))


def _failed_apply(report, failed, made):
    parts = []
    if failed:
        parts.append(
            "{} of {} failed: {}".format(
                len(failed),
                count(len(report["changes"]), "change"),
                listed("{}: {}".format(_named(change), change["reason"].rstrip(".")) for change in failed),
            )
        )
    if report["problems"]:
        parts.append("not kept across boots: {}".format(listed(p.rstrip(".") for p in report["problems"])))
    rows = sorted({row for change in failed for row in change["rows"]})
    step = "mend that and run this again"
    if rows:
        step += ", or leave out what cannot be had with `skip: [{}]`".format(", ".join(rows))
    if report["set"] and made:
        parts.append(
            "{} in force as set {}".format(count(len(made), "change is", "changes are"), report["set"])
        )
        step += "; state reverted with `set_id: {}` puts the others back".format(report["set"])
    return "{}. Next: {}".format(". ".join(parts), step)


def _named(change):
    return "{} (row {})".format(change["description"], ", ".join(change["rows"]))


def _file(written):
    return {"path": written["path"], "action": written["action"], "store": written["store"]}


def _diff(changes, files):
    """Ansible's differences: a value each, then the lines of files as hwtune shows them."""
    found = []
    for change in changes:
        if change["before"] or change["after"]:
            found.append(_values(change["target"], change["before"], change["after"]))
    return found + _file_diffs(files)


def _values(name, before, after):
    return {
        "before_header": name,
        "after_header": name,
        "before": before + "\n" if before else "",
        "after": after + "\n" if after else "",
    }


def _file_diffs(files):
    found = []
    for written in files:
        if written["diff"]:
            found.append({"prepared": written["diff"] + "\n"})
        else:  # a link, a folder, an empty file
            words = {"create": ("absent", "there"), "remove": ("there", "absent")}
            before, after = words.get(written["action"], ("as it was", "anew"))
            found.append(_values("{} {}".format(written["kind"], written["path"]), before, after))
    return found


# -- verify --------------------------------------------------------------------------------------


def verified(report, pending_ok):
    off = [change for change in report["changes"] if change["status"] != IN_FORCE]
    pending = [change for change in off if change["status"] == PENDING]
    unsettled = [s for s in report["sets"] if s["status"] not in ("in force", "partly reverted")]
    bad = off if not pending_ok else [change for change in off if change["status"] != PENDING]
    result = {
        "changed": False,
        "in_force": report["in_force"],
        "held": len(report["changes"]),
        "drifted": [change for change in off if change["status"] != PENDING],
        "pending": pending,
        "reboot_required": bool(pending),
        "sets": report["sets"],
        "running": report["running"],
        "journal": report["journal"],
    }
    result["msg"] = _verify_message(report, off)
    failure = ""
    if bad or unsettled or (not report["in_force"] and not off):
        parts = []
        if bad:
            parts.append(
                "{} not in force: {}".format(
                    count(len(bad), "setting is", "settings are"), listed(map(_drift, bad))
                )
            )
        parts += ["set {} is {}".format(s["set"], s["status"]) for s in unsettled]
        if not parts:
            parts = ["the journal is damaged: {}".format(listed(report["journal"]))]
        if report["running"]:
            step = "wait for what changes this host right now ({})".format(report["running"])
        elif bad and len(bad) == len(pending) and not unsettled:
            step = "reboot this host"
        elif unsettled:
            step = "state applied settles what was interrupted, state reverted takes it back"
        elif not bad:
            step = "see `hwtune verify` on the host"
        else:
            step = "stop what sets it, then state applied sets it again; or state reverted gives it up"
        failure = "{}. Next: {}".format(". ".join(parts), step)
    return Reading(result, failure)


def _drift(change):
    told = "{} is {} and should be {}".format(change["target"], change["now"], change["wanted"])
    why = [change["reason"]] if change["reason"] else []
    if change["suspects"]:
        why.append("could have been set by {}".format(", ".join(change["suspects"])))
    if change["status"] not in (PENDING, "drifted"):
        why.insert(0, change["status"])
    return told + (" ({})".format("; ".join(why)) if why else "")


def _verify_message(report, off):
    if not report["sets"] and not report["changes"]:
        return "hwtune holds nothing here"
    if report["in_force"]:
        return "everything is in force"
    kinds = {}
    for change in off:
        kinds[change["status"]] = kinds.get(change["status"], 0) + 1
    return ", ".join(f"{kinds[kind]} {kind}" for kind in sorted(kinds)) or "not everything is in force"


# -- revert --------------------------------------------------------------------------------------


def reverted(report):
    outcomes = [dict(outcome, set=s["set"]) for s in report["sets"] for outcome in s["outcomes"]]
    failed = [o for o in outcomes if o["status"] == "failed"]
    kept = [o for o in outcomes if o["status"] == "kept"]
    problems = [problem for s in report["sets"] for problem in s["problems"]]
    restored = [o for o in outcomes if o["status"] == "restored"]
    result = {
        "changed": report["changed"],
        "sets": [s["set"] for s in report["sets"]],
        "restored": restored,
        "kept": kept,
        "failed_changes": failed,
        "problems": problems,
        "files": [_file(f) for f in report["files"]],
        "commands": report["commands"],
        "reboot_required": report["reboot_required"],
    }
    verb = "to put back" if report["check"] else "put back"
    result["msg"] = (
        "{} {}".format(count(len(restored), "setting"), verb) if report["changed"] else "nothing to put back"
    )
    failure = ""
    if failed or kept or problems:
        parts = []
        if failed:
            parts.append(
                "could not be put back: {}".format(
                    listed("{}: {}".format(o["target"], o["reason"]) for o in failed)
                )
            )
        if kept:
            parts.append(
                "left alone: {}".format(listed("{}: {}".format(o["target"], o["reason"]) for o in kept))
            )
        parts += problems
        step = (
            "`force: true` overwrites what someone else changed since"
            if kept
            else "mend that and run this again"
        )
        failure = "{}. Next: {}".format(". ".join(p.rstrip(".") for p in parts), step)
    diff = [_values(o["target"], o["before"], o["after"]) for o in restored] + _file_diffs(report["files"])
    return Reading(result, failure, diff=diff)


# -- validate ------------------------------------------------------------------------------------


# What is returned of a measurement; the rest (histograms, single ticks, threads) is in the whole report.
MEASURED = (
    "engine", "model", "cpus", "duration_s", "completed", "missing", "throughput", "end_to_end", "stages",
    "sla",
    "budget", "baseline", "drops", "queue_high_watermark", "page_faults", "context_switches", "migrations",
    "outliers_seen", "outlier_causes", "clock_overhead_ns", "interrupted", "reading",
)  # fmt: skip


def validated(report, status, require):
    """``status`` is hwtune's own verdict: 1 where the SLA or the baseline was missed. ``require``: which of
    them fail the task."""
    missed = []
    if report["sla"]["met"] is False:
        missed.append("sla")
    comparison = report["baseline"]
    if comparison is not None and comparison["verdict"] == "worse":
        missed.append("baseline")
    if status != 0 and not missed:  # a verdict that this collection does not know how to take apart
        missed = ["sla", "baseline"]
    result = {key: report[key] for key in MEASURED}
    p99 = report["end_to_end"]["p99_us"]
    msg = "P99 {} end to end over {} ticks".format(_us(p99), report["completed"])
    if comparison is not None:
        msg += f", {_compared(comparison)}"
    result.update({"changed": False, "within": status == 0, "missed": missed, "p99_us": p99, "msg": msg})
    warnings = []
    if comparison is not None and comparison["verdict"] not in ("worse", "not worse"):
        warnings.append(
            "whether it is worse than before {}: {}".format(comparison["verdict"], comparison["why"])
        )
    failure = ""
    grave = [what for what in missed if what in require]
    if grave:
        names = {"sla": "the SLA of {}".format(_us(report["sla"]["limit_us"])), "baseline": "the baseline"}
        parts = ["{} was missed: {}".format(" and ".join(names[what] for what in grave), msg)]
        parts += [reading["says"].rstrip(".") for reading in report["reading"][:1]]
        rows = [row for reading in report["reading"] for row in reading["look"]]
        step = "`hwtune validate` on the host shows which stage spent the time"
        if rows:
            step = f"`hwtune doctor --only {rows[0]}` on the host"
        failure = "{}. Next: {}".format(". ".join(parts), step)
    return Reading(result, failure, warnings)


def _compared(comparison):
    change = comparison["change_pct"]
    if change is None:
        return "which cannot be compared with before"
    word = "more" if change > 0 else "less"
    return "{} % {} than the {} before (limit {} %)".format(
        _short(abs(change)), word, _us(comparison["before_us"]), _short(comparison["limit_pct"])
    )


def _us(number):
    return "unknown" if number is None else _short(number) + " us"


def _short(number):
    return f"{number:.1f}".rstrip("0").rstrip(".")


# -- words ---------------------------------------------------------------------------------------


def count(number, one, many=""):
    noun = one if number == 1 else many or one + "s"
    return f"{number} {noun}"


def listed(items):
    """The first few, and how many more there are."""
    items = list(items)
    told = "; ".join(items[:TOLD])
    return told + (f"; and {len(items) - TOLD} more" if len(items) > TOLD else "")
