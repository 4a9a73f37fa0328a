"""Writes what became of each task on each host as a line of JSON, for tests to read (HWTUNE_TEST_RECORD)."""

from __future__ import annotations

import json
import os

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: record
type: aggregate
short_description: results as lines of JSON
description: For tests.
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "record"
    CALLBACK_NEEDS_ENABLED = False

    def _write(self, **fields):
        with open(os.environ["HWTUNE_TEST_RECORD"], "a") as file:
            file.write(json.dumps(fields, default=str) + "\n")

    def _note(self, outcome, result):
        # ansible-core 2.19 gave the attributes names without an underscore
        host = getattr(result, "host", None) or result._host
        task = getattr(result, "task", None) or result._task
        told = result.result if hasattr(result, "result") else result._result
        self._write(
            host=host.get_name(), task=task.get_name(), action=task.action, outcome=outcome, result=told
        )

    def v2_runner_on_ok(self, result):
        self._note("ok", result)

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self._note("ignored" if ignore_errors else "failed", result)

    def v2_runner_on_unreachable(self, result):
        self._note("unreachable", result)

    def v2_runner_on_skipped(self, result):
        self._note("skipped", result)

    def v2_playbook_on_stats(self, stats):
        self._write(recap={host: stats.summarize(host) for host in sorted(stats.processed)})
