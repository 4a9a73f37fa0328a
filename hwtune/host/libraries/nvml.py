"""What NVML says of every GPU, through NVIDIA's own library and nvidia-ml-py.

The library is asked in a child process with a time limit: a driver that hangs holds its caller in
the kernel for good, and that must not be doctor. The child is started only where the driver is
loaded, as NVML would otherwise try to load it, which would be a change.

``query()`` returns JSON-able data::

    {"system": {CALL: ANSWER}, "gpus": [{CALL: ANSWER}], "pairs": [[i, j, {CALL: ANSWER}]],
     "stopped": None or {"why": "hung" | "crashed", "scope": "gpu 3", "call": CALL, "detail": "..."}}

where CALL is the function with its arguments, as in "nvmlDeviceGetClockInfo(sm)", and ANSWER is
{"value": ...} or {"error": "NOT_SUPPORTED"} (the name of the NVML_ERROR).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from hwtune.fact import ABSENT
from hwtune.host.libraries import LibraryGap

if TYPE_CHECKING:
    import subprocess

# Without persistence mode each GPU is initialized first, which takes 1 to 3 s (NVIDIA's "Driver
# Persistence"), of eight or sixteen of them at once.
TIMEOUT_S = 30.0
_OUTPUT_LIMIT = 4 << 20
# There where the driver is loaded; the last one in WSL, where the driver is Windows'.
_SIGNS = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg")
_CHILD = (
    "import sys; sys.path[:] = sys.argv[1:]; "
    "from hwtune.host.libraries import _nvml_child; _nvml_child.main()"
)


def query() -> dict[str, Any]:
    if not any(os.path.exists(path) for path in _SIGNS):
        raise LibraryGap(ABSENT, "no NVIDIA driver is loaded")
    return ask(TIMEOUT_S)


def ask(timeout_s: float) -> dict[str, Any]:
    """Start the child and collect what it says until it ends, or the time is over."""
    import subprocess
    import sys

    child = subprocess.Popen(
        # Isolated, so that neither the working directory nor PYTHON* variables choose what runs;
        # the same places as ours instead.
        [sys.executable, "-I", "-c", _CHILD, *(os.path.abspath(path) for path in sys.path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
        start_new_session=True,
    )
    said, complaint, ended = _collect(child, timeout_s)
    report = parse(said)
    if ended and child.returncode == 0:
        return report
    scope, call = _unanswered(said)
    report["stopped"] = {
        "why": "crashed" if ended else "hung",
        "scope": scope,
        "call": call,
        "detail": _last_line(complaint) if ended else f"no answer within {timeout_s:g} s",
    }
    return report


def _collect(child: subprocess.Popen[bytes], timeout_s: float) -> tuple[str, str, bool]:
    """Its output, its errors, and whether it ended by itself."""
    import selectors
    import time

    deadline = time.monotonic() + timeout_s
    texts = {child.stdout: bytearray(), child.stderr: bytearray()}
    with selectors.DefaultSelector() as selector:
        for pipe in texts:
            selector.register(pipe, selectors.EVENT_READ)  # type: ignore[arg-type]
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                break
            for key, _ in selector.select(left):
                piece = os.read(key.fd, 1 << 16)
                text = texts[key.fileobj]  # type: ignore[index]
                if not piece or len(text) > _OUTPUT_LIMIT:
                    selector.unregister(key.fileobj)
                text.extend(piece)
    ended = _end(child, deadline - time.monotonic())
    for pipe in texts:
        pipe.close()  # type: ignore[union-attr]
    said, complaint = (bytes(text).decode("utf-8", "replace") for text in texts.values())
    return said, complaint, ended


def _end(child: subprocess.Popen[bytes], left_s: float) -> bool:
    """Whether it ended in time. If not, it is killed; one that the kernel holds (state D) cannot
    be, and is left behind rather than waited for."""
    import signal
    import subprocess

    try:
        child.wait(max(0.0, left_s))
        return True
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
    try:
        child.wait(0.5)
    except subprocess.TimeoutExpired:
        child.returncode = -signal.SIGKILL  # so that nothing waits for it later, either
    return False


def parse(said: str) -> dict[str, Any]:
    """The report in the child's lines: scope, call and answer, separated by tabs."""
    import json

    system: dict[str, Any] = {}
    gpus: list[dict[str, Any]] = []
    pairs: list[list[Any]] = []
    for line in said.split("\n")[:-1]:
        scope, call, answer = line.split("\t", 2)
        kind, _, numbers = scope.partition(" ")
        if kind == "system":
            system[call] = json.loads(answer)
        elif kind == "gpu":
            while len(gpus) <= int(numbers):
                gpus.append({})
            gpus[int(numbers)][call] = json.loads(answer)
        else:
            first, second = (int(number) for number in numbers.split("-"))
            if not pairs or pairs[-1][:2] != [first, second]:
                pairs.append([first, second, {}])
            pairs[-1][2][call] = json.loads(answer)
    return {"system": system, "gpus": gpus, "pairs": pairs, "stopped": None}


def _unanswered(said: str) -> tuple[str, str]:
    """Scope and name of the call that was made last, where its answer is missing."""
    scope, _, rest = said.rpartition("\n")[2].partition("\t")
    return scope, rest.partition("\t")[0]


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:200] if lines else ""
