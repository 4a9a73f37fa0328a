"""What the commands that change a machine share: who may run them, the lock, asking, how to tell."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from hwtune.changes.journal import FOLDER, Journal
from hwtune.changes.system import System
from hwtune.errors import ToolError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hwtune.changes.run import Written


def need_root(verb: str) -> None:
    """One sentence, before anything is touched."""
    if os.geteuid() != 0:
        raise ToolError(f"only root may {verb}; run it with sudo")


def the_journal() -> Journal:
    return Journal(FOLDER)


def the_system() -> System:
    return System()


@contextmanager
def opened(journal: Journal, command: str) -> Iterator[Journal]:
    """The journal, locked and ready to be written."""
    # folders and files that tools make on our behalf are for all to read, whatever root's shell says
    mask = os.umask(0o022)
    # a change may reset the very link that the terminal hangs on
    hangup = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        journal.open(command)
        yield journal
    finally:
        journal.close()
        signal.signal(signal.SIGHUP, hangup)
        os.umask(mask)


def need_whole_journal(journal: Journal) -> None:
    """Who cannot tell all that was done must not do more."""
    contents = journal.records()
    if contents.damaged:
        raise ToolError(
            f"{contents.damaged[0]}, so that not all that hwtune did is known; `hwtune revert --all` puts "
            f"back what is, then move {journal.path} away"
        )


def confirm(question: str, yes: bool) -> bool:
    """Ask a person; a script must have said --yes."""
    if yes:
        return True
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError("there is no terminal to ask at; say --yes to go ahead, or --check to look only")
    return click.confirm(question, default=False, err=True)


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def file_lines(files: Sequence[Written], commands: Sequence[str], diff: bool, check: bool) -> list[str]:
    """The files and commands of a run, a line each, with the lines that change below."""
    from hwtune.report.changes import file_changes

    lines = []
    words = {"create": "   (new)", "replace": "   (anew)", "remove": ""}
    for change in file_changes(files):
        did, would = ("removed", "remove") if change.action == "remove" else ("wrote", "write")
        word = f"would {would}" if check else did
        lines.append(f"{word:<11} {change.path}{words[change.action]}")
        if diff:
            lines += [f"{'':<12}  {line}" for line in change.diff.split("\n")[2:]]
    for command in dict.fromkeys(commands):
        lines.append(f"{'would run' if check else 'ran':<12}{command}")
    return lines
