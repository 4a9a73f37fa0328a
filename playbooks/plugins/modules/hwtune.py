#!/usr/bin/python
# Copyright: the hwtune developers
# Apache License 2.0 (see https://www.apache.org/licenses/LICENSE-2.0)

DOCUMENTATION = r"""
module: hwtune
short_description: Diagnose, tune, verify, put back and measure a low-latency or GPU-inference host
version_added: 0.1.0
description:
  - Runs the C(hwtune) that is installed on the host and returns what it found or did as structured data.
  - O(state=diagnosed) reads only. It needs no root, but what only root may read is then unknown.
  - O(state=applied) mends what doctor finds. Each change is in a journal on the host before it is made, so
    that O(state=reverted) puts it back. A second run changes nothing.
  - O(state=verified) tells whether what was applied is still in force, and who may have changed it.
  - O(state=validated) measures. Market ticks go through queue, features, inference and orders, and the
    latency of each stage is reported.
  - Options that are named as on hwtune's command line mean the same here; C(hwtune COMMAND --help) on the
    host tells more of them.
options:
  state:
    description: What is to be so, or to be known, when the task is done.
    type: str
    required: true
    choices: [diagnosed, applied, verified, reverted, validated]
  executable:
    description:
      - The path of C(hwtune) on the host.
      - Without it, C(/opt/hwtune/bin) (where the role of this collection puts it) and then PATH are searched.
    type: path
  profile:
    description:
      - The profile with targets and thresholds, for O(state=diagnosed) and O(state=applied). The name of a
        built-in one (V(low-latency), V(gpu-inference), V(gpu-training)) or the path of a TOML file on the
        host.
      - hwtune's own default is V(low-latency).
    type: str
  profile_content:
    description:
      - The profile itself, as TOML, in place of O(profile). It is on the host only while the task runs.
    type: str
  set:
    description: >-
      Values of the profile to override, each C(KEY=VALUE), for O(state=diagnosed) and O(state=applied).
    type: list
    elements: str
    default: []
  only:
    description: >-
      Patterns of the rows to look at, such as V(memory.*), for O(state=diagnosed) and O(state=applied).
    type: list
    elements: str
    default: []
  skip:
    description: Patterns of the rows to leave out, for O(state=diagnosed) and O(state=applied).
    type: list
    elements: str
    default: []
  active:
    description: With O(state=diagnosed), measure too, as C(--active) does. That takes up to a minute.
    type: bool
    default: false
  fail_on:
    description:
      - With O(state=diagnosed), the task fails when there is a finding of this severity or a higher one.
      - On the command line the default is V(warning); here a diagnosis is information unless you say
        otherwise.
    type: str
    choices: [info, warning, error, never]
    default: never
  allow:
    description:
      - With O(state=applied), what may be done to the host. V(boot) permits changes that wait for a reboot,
        V(service) the restart of a service, V(link) the reset of a network link.
      - The module never reboots; RV(reboot_required) says when it is time to.
    type: list
    elements: str
    choices: [boot, service, link]
    default: []
  runtime_only:
    description: With O(state=applied), set values now and keep nothing across a boot.
    type: bool
    default: false
  strict:
    description:
      - With O(state=applied), fail also when something was left as it is because O(allow) does not name
        what it
        takes. Otherwise that is a warning, and in RV(not_allowed).
    type: bool
    default: false
  pending_ok:
    description:
      - With O(state=verified), accept what takes effect at the next boot. Otherwise it fails the task like
        a drift.
    type: bool
    default: false
  set_id:
    description:
      - With O(state=reverted), the one change set to put back, as in RV(set) of the task that applied it.
      - Without it, everything that hwtune holds on the host is put back.
    type: str
  force:
    description: With O(state=reverted), restore also what someone else has changed since.
    type: bool
    default: false
  engine:
    description: With O(state=validated), the inference engine, V(auto), V(cpu), V(onnx) or V(null).
    type: str
  onnx:
    description: With O(state=validated), the path of an ONNX model on the host.
    type: path
  plan:
    description: With O(state=validated), the path of a TensorRT plan on the host.
    type: path
  rate:
    description: With O(state=validated), ticks per second.
    type: float
  duration:
    description: With O(state=validated), how long to measure, such as V(30s) or V(10m).
    type: str
  warmup:
    description: With O(state=validated), how long to run before it counts, such as V(1s).
    type: str
  arrivals:
    description: >-
      With O(state=validated), how ticks arrive. V(fixed), V(poisson), V(burst), or the path of a recorded
      file
      on the host.
    type: str
  seed:
    description: With O(state=validated), the seed of random arrivals.
    type: int
  sla_us:
    description: With O(state=validated), the P99 end to end that is promised, in microseconds.
    type: float
  budget:
    description: With O(state=validated), the path of a budget in TOML on the host, microseconds a stage.
    type: path
  baseline:
    description: >-
      With O(state=validated), the path on the host of an earlier report (see O(output)) to compare
      with.
    type: path
  max_regression:
    description:
      - With O(state=validated) and O(baseline), by how much P99 may be worse, such as V(10%).
      - hwtune decides by statistics over the whole run, not by the two numbers.
    type: str
  outlier_us:
    description: With O(state=validated), from how many microseconds on a tick is looked into.
    type: float
  cpus:
    description: With O(state=validated), the CPUs for the threads, such as V(2,4,6), or V(auto).
    type: str
  output:
    description:
      - With O(state=validated), a file on the host for the whole report, to be the O(baseline) of a later
        run.
      - The task then counts as changed, as it writes the file.
    type: path
  require:
    description:
      - With O(state=validated), what has to be kept, or the task fails. V(sla) is the promised P99,
        V(baseline) what
        O(baseline) and O(max_regression) allow.
    type: list
    elements: str
    choices: [sla, baseline]
    default: [sla, baseline]
  save_to:
    description:
      - A folder on the controller. hwtune's whole JSON report is written there as C(HOST.json), for any
        state.
      - It is not counted as a change of the host, and not written in check mode.
    type: path
  full_report:
    description: >-
      Return hwtune's whole JSON report as RV(report). It is large (O(state=diagnosed) tells all of the
      machine).
    type: bool
    default: false
attributes:
  check_mode:
    support: full
    description:
      - O(state=applied) and O(state=reverted) tell exactly what they would do, as C(--check) does.
      - O(state=validated) does not measure, as that loads the host's CPUs; RV(measured) is then V(false).
  diff_mode:
    support: full
    description: Shows each value and the lines of each file, as C(hwtune apply --check --diff) does.
  platform:
    platforms: linux
    support: full
    description: The hosts that it works on.
requirements:
  - hwtune 0.1.0 or newer on the host
  - Python 3.6 or newer on the host for this module itself, with nothing but its standard library
    (ansible-core 2.17
    and newer want 3.7 or more)
notes:
  - O(state=applied), O(state=verified) and O(state=reverted) need root; set C(become).
  - hwtune takes a lock, so that two runs on one host do not mix. The second one fails and says who has it.
  - The essence of what is returned is also set as a fact named after the state, such as
    C(ansible_facts.hwtune_applied); of a task that failed it is not, as Ansible takes no facts from one.
author:
  - The hwtune developers (@hwtune)
"""

EXAMPLES = r"""
- name: See what makes the tail long
  hwtune.hwtune.hwtune:
    state: diagnosed
    save_to: reports
  register: found

- name: Stop where a host has errors
  hwtune.hwtune.hwtune:
    state: diagnosed
    only: [pcie.*, gpu.*]
    fail_on: error

- name: Mend what can be mended without disrupting anything
  hwtune.hwtune.hwtune:
    state: applied
    profile: /etc/hwtune/site.toml
  become: true
  register: tuned

- name: Reboot where it is needed
  ansible.builtin.reboot:
  become: true
  when: tuned.reboot_required

- name: Make sure that all of it is in force
  hwtune.hwtune.hwtune:
    state: verified
  become: true

- name: Measure, and fail when P99 is worse than before by more than a tenth
  hwtune.hwtune.hwtune:
    state: validated
    duration: 60s
    baseline: /var/lib/hwtune/before.json
    max_regression: 10%
  become: true

- name: Put back what this run changed
  hwtune.hwtune.hwtune:
    state: reverted
    set_id: "{{ tuned.set }}"
  become: true
  when: tuned.set is not none
"""

RETURN = r"""
msg:
  description: One sentence. Of a failure, which rows it is about, and what to do next.
  returned: always
  type: str
  sample: 3 changes made
hwtune_version:
  description: The version of hwtune on the host.
  returned: success
  type: str
  sample: 0.1.0
command:
  description: What was run on the host, as a list of arguments.
  returned: success
  type: list
  elements: str
elapsed_s:
  description: How long hwtune took, in seconds.
  returned: success
  type: float
report:
  description: hwtune's whole report, as the JSON text that it printed.
  returned: with O(full_report)
  type: str
saved:
  description: Where on the controller the whole report is.
  returned: with O(save_to), unless in check mode
  type: str
summary:
  description: How many rows are ok, a finding, not-applicable and unknown, and findings by severity.
  returned: with O(state=diagnosed)
  type: dict
  sample: {"ok": 50, "finding": 2, "not-applicable": 93, "unknown": 0,
    "by_severity": {"error": 0, "warning": 1, "info": 1}}
worst:
  description: The highest severity among the findings; V(none) without one.
  returned: with O(state=diagnosed)
  type: str
  sample: warning
findings:
  description: The findings, the worst first.
  returned: with O(state=diagnosed)
  type: list
  elements: dict
  contains:
    row:
      description: The row of the diagnosis table, for C(hwtune explain).
      type: str
      returned: always
    severity:
      description: V(error), V(warning) or V(info).
      type: str
      returned: always
    scope:
      description: What mending takes. V(runtime), V(service), V(boot), V(firmware) or V(hands).
      type: str
      returned: always
    title:
      description: The row's title.
      type: str
      returned: always
    subject:
      description: What it is about, such as C(cpu:2-7).
      type: str
      returned: always
    message:
      description: What is wrong.
      type: str
      returned: always
    evidence:
      description: The source, the value there and what is expected.
      type: list
      elements: dict
      returned: always
    mendable:
      description: Whether O(state=applied) can mend it.
      type: bool
      returned: always
    advice:
      description: What a person can do where hwtune cannot.
      type: str
      returned: always
unknown:
  description: What could not be judged, why, and what would make it known.
  returned: with O(state=diagnosed)
  type: list
  elements: dict
defects:
  description: Parts of hwtune that failed. Each is a fault of hwtune's, never of the host.
  returned: with O(state=diagnosed)
  type: list
  elements: dict
host:
  description: The host as hwtune names it.
  returned: with O(state=diagnosed)
  type: dict
set:
  description: The change set that was made; none where nothing was to do, and in check mode.
  returned: with O(state=applied)
  type: str
  sample: 20261130-101502-9f3a
changes:
  description: Each change that the rows ask for, with what became of it.
  returned: with O(state=applied)
  type: list
  elements: dict
  sample:
    - id: c1
      kind: sysctl
      target: sysctl:vm.swappiness
      description: set sysctl vm.swappiness = 1
      rows: [memory.swappiness]
      before: "60"
      after: "1"
      status: changed
      reason: ""
      disruption: ""
      reboot_required: false
failed_changes:
  description: Those of them that failed, with why; nothing of them is left on the host.
  returned: with O(state=applied) and O(state=reverted)
  type: list
  elements: dict
not_allowed:
  description: Those of them that O(allow) does not permit.
  returned: with O(state=applied)
  type: list
  elements: dict
files:
  description: Files that were created, replaced or removed.
  returned: with O(state=applied) and O(state=reverted)
  type: list
  elements: dict
commands:
  description: What was run so that the system takes notice of the files.
  returned: with O(state=applied) and O(state=reverted)
  type: list
  elements: str
problems:
  description: What could not be kept across boots, or could not be taken back.
  returned: with O(state=applied) and O(state=reverted)
  type: list
  elements: str
reboot_required:
  description: Whether something waits for the next boot.
  returned: with O(state=applied), O(state=verified) and O(state=reverted)
  type: bool
in_force:
  description: Whether all that hwtune holds is in force.
  returned: with O(state=verified)
  type: bool
held:
  description: How many settings hwtune holds on the host.
  returned: with O(state=verified)
  type: int
drifted:
  description: What is not in force, what it is now, and who may have done it.
  returned: with O(state=verified)
  type: list
  elements: dict
pending:
  description: What takes effect at the next boot.
  returned: with O(state=verified)
  type: list
  elements: dict
sets:
  description: >-
    The change sets; of O(state=verified) each with its status, of O(state=reverted) those that were put
    back.
  returned: with O(state=verified) and O(state=reverted)
  type: list
  elements: raw
running:
  description: Who changes the host through hwtune right now.
  returned: with O(state=verified)
  type: str
journal:
  description: What is wrong with hwtune's journal.
  returned: with O(state=verified)
  type: list
  elements: str
restored:
  description: What was put back.
  returned: with O(state=reverted)
  type: list
  elements: dict
kept:
  description: What was left alone, as someone else changed it since.
  returned: with O(state=reverted)
  type: list
  elements: dict
measured:
  description: Whether it was measured; V(false) in check mode.
  returned: with O(state=validated)
  type: bool
within:
  description: Whether the SLA and the baseline were kept, by hwtune's own statistics.
  returned: with O(state=validated), when measured
  type: bool
missed:
  description: What was missed, V(sla) and V(baseline).
  returned: with O(state=validated), when measured
  type: list
  elements: str
p99_us:
  description: P99 end to end, in microseconds.
  returned: with O(state=validated), when measured
  type: float
end_to_end:
  description: Count and percentiles end to end, in microseconds.
  returned: with O(state=validated), when measured
  type: dict
stages:
  description: The same for each stage.
  returned: with O(state=validated), when measured
  type: dict
sla:
  description: The limit, the P99 of all ticks that were due, and whether it was met.
  returned: with O(state=validated), when measured
  type: dict
baseline:
  description: The comparison with O(baseline), its verdict and the interval of the change; none without one.
  returned: with O(state=validated), when measured
  type: dict
engine:
  description: The engine that scored.
  returned: with O(state=validated), when measured
  type: str
model:
  description: The digest of a model of one's own.
  returned: with O(state=validated), when measured
  type: str
cpus:
  description: The CPUs of the threads, by role.
  returned: with O(state=validated), when measured
  type: dict
duration_s:
  description: How long was measured, in seconds.
  returned: with O(state=validated), when measured
  type: float
completed:
  description: How many ticks came through.
  returned: with O(state=validated), when measured
  type: int
missing:
  description: How many ticks were due and never came through.
  returned: with O(state=validated), when measured
  type: int
throughput:
  description: Ticks a second that came through.
  returned: with O(state=validated), when measured
  type: float
budget:
  description: The budget, in microseconds a stage.
  returned: with O(state=validated), when measured
  type: dict
drops:
  description: Ticks and orders that a full queue refused.
  returned: with O(state=validated), when measured
  type: int
queue_high_watermark:
  description: The most messages that were seen waiting, by queue.
  returned: with O(state=validated), when measured
  type: dict
page_faults:
  description: Minor and major page faults of the threads.
  returned: with O(state=validated), when measured
  type: dict
context_switches:
  description: Voluntary and involuntary context switches of the threads.
  returned: with O(state=validated), when measured
  type: dict
migrations:
  description: How often a thread changed its CPU; none where the kernel does not tell.
  returned: with O(state=validated), when measured
  type: int
outliers_seen:
  description: How many ticks were slower than O(outlier_us).
  returned: with O(state=validated), when measured
  type: int
outlier_causes:
  description: What else happened on the CPUs then.
  returned: with O(state=validated), when measured
  type: dict
clock_overhead_ns:
  description: What reading the clock costs, in nanoseconds.
  returned: with O(state=validated), when measured
  type: float
interrupted:
  description: Whether the measurement was ended early.
  returned: with O(state=validated), when measured
  type: bool
reading:
  description: What the figures point at, and which rows to look at.
  returned: with O(state=validated), when measured
  type: list
  elements: dict
"""

import os
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hwtune.hwtune.plugins.module_utils.arguments import command_line
from ansible_collections.hwtune.hwtune.plugins.module_utils.client import Client, ClientError, find, fit
from ansible_collections.hwtune.hwtune.plugins.module_utils.reports import (
    applied,
    diagnosed,
    reverted,
    validated,
    verified,
)

ARGUMENTS = {
    "state": {
        "type": "str",
        "required": True,
        "choices": ["diagnosed", "applied", "verified", "reverted", "validated"],
    },
    "executable": {"type": "path"},
    "profile": {"type": "str"},
    "profile_content": {"type": "str"},
    "set": {"type": "list", "elements": "str", "default": []},
    "only": {"type": "list", "elements": "str", "default": []},
    "skip": {"type": "list", "elements": "str", "default": []},
    "active": {"type": "bool", "default": False},
    "fail_on": {"type": "str", "choices": ["info", "warning", "error", "never"], "default": "never"},
    "allow": {"type": "list", "elements": "str", "choices": ["boot", "service", "link"], "default": []},
    "runtime_only": {"type": "bool", "default": False},
    "strict": {"type": "bool", "default": False},
    "pending_ok": {"type": "bool", "default": False},
    "set_id": {"type": "str"},
    "force": {"type": "bool", "default": False},
    "engine": {"type": "str"},
    "onnx": {"type": "path"},
    "plan": {"type": "path"},
    "rate": {"type": "float"},
    "duration": {"type": "str"},
    "warmup": {"type": "str"},
    "arrivals": {"type": "str"},
    "seed": {"type": "int"},
    "sla_us": {"type": "float"},
    "budget": {"type": "path"},
    "baseline": {"type": "path"},
    "max_regression": {"type": "str"},
    "outlier_us": {"type": "float"},
    "cpus": {"type": "str"},
    "output": {"type": "path"},
    "require": {
        "type": "list",
        "elements": "str",
        "choices": ["sla", "baseline"],
        "default": ["sla", "baseline"],
    },
    "save_to": {"type": "path"},
    "full_report": {"type": "bool", "default": False},
}

# What of a result is set as a fact: what later plays decide by, and no more than that is stored for each
# host.
FACTS = (
    "msg", "summary", "worst", "findings", "set", "changes", "not_allowed", "reboot_required", "in_force",
    "drifted", "pending", "sets", "restored", "kept", "within", "missed", "p99_us", "end_to_end", "stages",
    "baseline",
)  # fmt: skip


def main():
    module = AnsibleModule(
        argument_spec=ARGUMENTS,
        mutually_exclusive=[("onnx", "plan"), ("profile", "profile_content")],
        supports_check_mode=True,
    )
    # hwtune's own words, whatever the host's language; no colours
    module.run_command_environ_update = {"LC_ALL": "C.UTF-8", "NO_COLOR": "1"}
    try:
        result, failure = _work(module)
    except ClientError as error:
        module.fail_json(msg=str(error), **error.details)
    if failure:
        module.fail_json(**dict(result, msg=failure))
    module.exit_json(**result)


def _work(module):
    """(result, why it failed or "")."""
    parameters, state = dict(module.params), module.params["state"]
    client = Client(find(parameters["executable"], module.get_bin_path), module.run_command)
    # doctor's report names the version, and a diagnosis of many hosts had better be quick
    version = "" if state == "diagnosed" else client.version()
    if state == "validated" and module.check_mode:
        msg = "not measured in check mode, as that would load the CPUs"
        return {"changed": False, "measured": False, "msg": msg, "hwtune_version": version}, ""
    if parameters["profile_content"]:
        parameters["profile"] = _profile(module)
    arguments = command_line(parameters, module.check_mode)
    status, report, text, seconds = client.report(arguments)
    version = version or fit(report["tool"]["version"])
    reading = _read(parameters, report, status)
    if state == "validated":
        reading.result["measured"] = True
        if parameters["output"]:
            _keep(module, text)
            reading.result["changed"] = True
    for warning in reading.warnings:
        module.warn(warning)
    result = dict(reading.result)
    facts = {key: value for key, value in result.items() if key in FACTS}
    result["ansible_facts"] = {"hwtune_" + state: dict(facts, hwtune_version=version)}
    result.update(hwtune_version=version, command=client.line(arguments), elapsed_s=seconds)
    if module._diff and reading.diff:
        result["diff"] = reading.diff
    if parameters["full_report"]:
        result["report"] = text
    return result, reading.failure


def _profile(module):
    """The profile as a file, which is gone when the task is."""
    handle, path = tempfile.mkstemp(dir=module.tmpdir, suffix=".toml")
    with os.fdopen(handle, "w") as file:
        file.write(module.params["profile_content"])
    return path


def _read(parameters, report, status):
    state = parameters["state"]
    if state == "diagnosed":
        return diagnosed(report, parameters["fail_on"])
    if state == "applied":
        return applied(report, parameters["strict"])
    if state == "verified":
        return verified(report, parameters["pending_ok"])
    if state == "reverted":
        return reverted(report)
    return validated(report, status, parameters["require"])


def _keep(module, text):
    """The report as a file on the host: the old one or the new one, never a half."""
    handle, temporary = tempfile.mkstemp(dir=module.tmpdir)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    module.atomic_move(temporary, module.params["output"])


if __name__ == "__main__":
    main()
