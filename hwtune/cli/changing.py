"""What the commands that change a machine share: who may run them, the lock, asking."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from hwtune.changes.journal import FOLDER, Journal
from hwtune.errors import ToolError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


def need_root(verb: str) -> None:
    """One sentence, before anything is touched."""
    if os.geteuid() != 0:
        raise ToolError(f"only root may {verb}; run it with sudo")


def the_journal() -> Journal:
    return Journal(FOLDER)


@contextmanager
def opened(journal: Journal, command: str) -> Iterator[Journal]:
    """The journal, locked and ready to be written; told of what a crash damaged."""
    journal.open(command)
    try:
        for sentence in journal.records()[1]:
            click.echo(f"hwtune: {sentence}; what stands before and after it holds", err=True)
        yield journal
    finally:
        journal.close()


def confirm(question: str, yes: bool) -> bool:
    """Ask a person; a script must have said --yes."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError("there is no terminal to ask at; say --yes to go ahead, or --check to look only")
    return click.confirm(question, default=False, err=True)
