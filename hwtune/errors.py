"""The errors that end a run, each with the exit status that scripts rely on."""

from __future__ import annotations

EXIT_OK = 0
EXIT_FINDINGS = 1
EXIT_USAGE = 2
EXIT_TOOL = 3


class HwtuneError(Exception):
    """An error told to the user as one sentence, without a traceback."""

    exit_status = EXIT_TOOL


class UsageError(HwtuneError):
    """The user's input is unusable: arguments, profile, snapshot (exit status 2)."""

    exit_status = EXIT_USAGE


class ToolError(HwtuneError):
    """hwtune could not do its work: no permission, broken journal, lock held (exit status 3)."""

    exit_status = EXIT_TOOL
