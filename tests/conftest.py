"""Fixtures that every test folder shares."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import hypothesis
import pytest


@pytest.fixture(scope="session")
def realdata() -> Path:
    """Folder of machines captured elsewhere, from HWTUNE_REALDATA; the test is skipped without it."""
    place = os.environ.get("HWTUNE_REALDATA")
    if not place:
        pytest.skip("HWTUNE_REALDATA is not set: no machines captured elsewhere to read")
    folder = Path(place)
    if not folder.is_dir():
        pytest.fail(f"HWTUNE_REALDATA={place} is not a folder")
    return folder


# The same examples at every run, so that a change is judged by what it changes.
# HWTUNE_EXPLORE=1 looks for new ones.
hypothesis.settings.register_profile("same", derandomize=True, deadline=None)
hypothesis.settings.register_profile("explore", derandomize=False, deadline=None)
hypothesis.settings.load_profile("explore" if os.environ.get("HWTUNE_EXPLORE") else "same")

# A shell starts what runs in the background with these ignored (and nohup the hangup), which every child
# would inherit: tests that interrupt one would wait for ever.
for _signal, _usual in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(_signal) == signal.SIG_IGN:
        signal.signal(_signal, _usual)
