# Copyright: the hwtune developers
# Apache License 2.0 (see https://www.apache.org/licenses/LICENSE-2.0)
"""Tables for the person who runs the plays: a list of lines, as Ansible prints each on a line of its own."""

RANKS = ("no answer", "failed", "error", "warning", "info", "none")


def doctor_table(results):
    """results: host -> what the task with state diagnosed returned."""
    rows = []
    for host in sorted(results):
        result = results[host]
        worst, told = _trouble(result)
        if not worst or "findings" in result:
            worst = result["worst"]
            told = _findings(result)
        rows.append((RANKS.index(worst), host, worst, told))
    return _table(("host", "worst", "findings"), [row[1:] for row in sorted(rows)])


def drift_table(results):
    """results: host -> what the task with state verified returned."""
    rows = []
    for host in sorted(results):
        result = results[host]
        word, told = _trouble(result)
        if "in_force" in result:
            word = "drift" if word else "in force"
            told = result["msg"] if word == "drift" else "{} settings".format(result["held"])
        rows.append((word == "in force", host, word, told))
    return _table(("host", "state", "what"), [row[1:] for row in sorted(rows)])


def _trouble(result):
    if result.get("unreachable"):
        return "no answer", result.get("msg", "")
    if result.get("failed"):
        return "failed", result.get("msg", "")
    return "", ""


def _findings(result):
    counts = result["summary"]["by_severity"]
    told = ", ".join(
        f"{counts[severity]} {severity}" for severity in ("error", "warning", "info") if counts.get(severity)
    )
    rows = []
    for found in result["findings"]:
        if found["severity"] == result["worst"] and found["row"] not in rows:
            rows.append(found["row"])
    unknown = result["summary"]["unknown"]
    parts = [told or "nothing found"]
    if unknown:
        parts.append(f"{unknown} unknown")
    if rows:
        parts.append(", ".join(rows[:4]) + (" ..." if len(rows) > 4 else ""))
    return "; ".join(parts)


def _table(head, rows):
    lines = [head] + [tuple(" ".join(str(cell).split()) for cell in row) for row in rows]
    widths = [max(len(line[column]) for line in lines) for column in (0, 1)]
    return [
        "  ".join([line[0].ljust(widths[0]), line[1].ljust(widths[1]), line[2]]).rstrip() for line in lines
    ]


class FilterModule:
    def filters(self):
        return {"doctor_table": doctor_table, "drift_table": drift_table}
