# Copyright: the hwtune developers
# Apache License 2.0 (see https://www.apache.org/licenses/LICENSE-2.0)
"""A task's parameters as hwtune's arguments: a list, no shell."""

# Parameters of state validated that are options of `hwtune validate` by the same name.
MEASURE = (
    "engine", "onnx", "plan", "rate", "duration", "warmup", "arrivals", "seed", "sla_us", "budget",
    "baseline", "max_regression", "cpus", "outlier_us",
)  # fmt: skip


def command_line(parameters, check):
    """hwtune's arguments for a report in JSON."""
    command, rest = _COMMANDS[parameters["state"]](parameters, check)
    return [command, "--format", "json", *rest]


def _doctor(parameters, check):
    # what fails the task is decided by the module: every report is wanted whole
    measure = ["--active"] if parameters["active"] else []
    return "doctor", [*_choice(parameters), *measure, "--fail-on", "never"]


def _apply(parameters, check):
    found = _choice(parameters)
    if parameters["allow"]:
        found += ["--allow", ",".join(parameters["allow"])]
    if parameters["runtime_only"]:
        found.append("--runtime-only")
    return "apply", [*found, "--check" if check else "--yes"]


def _verify(parameters, check):
    return "verify", []


def _revert(parameters, check):
    found = ["--check" if check else "--yes"]
    if parameters["force"]:
        found.append("--force")
    # what follows "--" is no option, whatever it looks like
    return "revert", found + (["--", parameters["set_id"]] if parameters["set_id"] else ["--all"])


def _validate(parameters, check):
    found = []
    for name in MEASURE:
        if parameters[name] is not None:
            found += ["--" + name.replace("_", "-"), plain(parameters[name])]
    return "validate", found


_COMMANDS = {
    "diagnosed": _doctor,
    "applied": _apply,
    "verified": _verify,
    "reverted": _revert,
    "validated": _validate,
}


def _choice(parameters):
    found = []
    if parameters["profile"]:
        found += ["--profile", parameters["profile"]]
    for option in ("set", "only", "skip"):
        for value in parameters[option]:
            found += ["--" + option, value]
    return found


def plain(value):
    """A number without what nobody wrote: 3200, not 3200.0."""
    if isinstance(value, float) and value == int(value):
        return str(int(value))
    return str(value)
