"""The real kernel's tracefs for a test: mounted in a mount namespace of the test's own.

Where the test may not do that (no root, a container, a kernel without tracing) it is skipped with the reason.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

_MOUNT = 'mount -t tracefs tracefs /sys/kernel/tracing && exec "$@"'
_UNSHARE = ("unshare", "--mount", "--propagation", "private", "sh", "-c", _MOUNT, "sh")


def lacking() -> str:
    """Why there is none to be had; "" where there is."""
    if os.geteuid() != 0:
        return "tracing needs root"
    try:
        done = subprocess.run(
            [*_UNSHARE, "test", "-d", "/sys/kernel/tracing/instances"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except OSError as error:
        return f"unshare: {error.strerror}"
    return (
        "" if done.returncode == 0 else f"tracefs cannot be mounted: {done.stderr.strip() or 'no instances'}"
    )


def command(*argv: str) -> list[str]:
    """A command line that sees tracefs."""
    return [*_UNSHARE, *argv]


def run(script: str, *arguments: str, timeout: float = 60) -> str:
    """What a Python script printed that sees tracefs."""
    done = subprocess.run(
        command(sys.executable, "-c", textwrap.dedent(script), *arguments),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


needed = pytest.mark.skipif(bool(reason := lacking()), reason=reason or "tracefs is there")
