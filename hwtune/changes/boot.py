"""What ``hwtune-boot.service`` runs: set what has no place of its own, as the last apply left it.

``/etc/hwtune/boot.json`` is hwtune's own file, ``{"format": 1, "apply": [{"target": KEY, "value": VALUE}]}``
with the keys of ``hwtune.changes.targets``. Each target is set alone in its failure and only where
it differs. What is said goes to stdout, with the priorities that systemd takes for its journal
(sd-daemon(3)).
"""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from typing import TYPE_CHECKING

from hwtune.changes.system import ChangeError, System

if TYPE_CHECKING:
    from collections.abc import Callable

    from hwtune.changes.targets import Target

PATH = "/etc/hwtune/boot.json"
FORMAT = 1
# How long what is not there yet (an interface, a drive) is waited for, and how often it is looked for.
PATIENCE_S = 10.0
PAUSE_S = 1.0
_LIMIT = 8 << 20
_ERROR, _WARNING, _INFO = "<3>", "<4>", "<6>"


def main() -> int:
    """Exit status 0, or 1 where something could not be set. What is not there is no fault: a drive
    that was pulled, an interface that is down."""
    try:
        return run(System(), lambda line: print(line, flush=True))
    except ChangeError as error:
        print(f"{_ERROR}hwtune: {error}", flush=True)
        return 1


def run(
    system: System,
    say: Callable[[str], None],
    patience_s: float = PATIENCE_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Carry the list out. Raises ``ChangeError`` where there is no list to trust."""
    from hwtune.changes.targets import from_key

    failed = 0

    def complain(key: str, error: ChangeError) -> None:
        nonlocal failed
        failed += 1
        say(f"{_ERROR}{key}: {error}")

    wanted: list[tuple[Target, str]] = []
    for key, value in read(system):
        try:
            wanted.append((from_key(key), value))
        except ChangeError as error:
            complain(key, error)
    deadline = clock() + patience_s
    while True:
        absent = []
        for target, value in wanted:
            try:
                if not _set(system, target, value, say):
                    absent.append((target, value))
            except ChangeError as error:
                complain(target.key, error)
        wanted = absent
        if not wanted or clock() >= deadline:
            break
        sleep(PAUSE_S)
    for target, _ in wanted:
        say(f"{_WARNING}{target.key}: it is not there")
    return 1 if failed else 0


def _set(system: System, target: Target, value: str, say: Callable[[str], None]) -> bool:
    """Whether the target is there; it then has the value."""
    now = target.read(system)
    if now is None:
        return False
    if target.same(now, value):
        return True
    target.write(system, value)
    after = target.read(system)
    if not target.same(after, value):
        raise ChangeError(f"it reads back as {target.show(after)}")
    say(f"{_INFO}{target.key}: {target.told(now, value)}")
    return True


def read(system: System) -> list[tuple[str, str]]:
    """Keys and values. Raises ``ChangeError`` for one that others than root could have written, or that
    is not what hwtune writes."""
    text = _trusted(system.root + PATH)
    try:
        content = json.loads(text)
        if content["format"] != FORMAT:
            raise ChangeError(f"{PATH} has format {content['format']}, which this version does not know")
        pairs = [(str(entry["target"]), entry["value"]) for entry in content["apply"]]
        if not all(isinstance(value, str) for _, value in pairs):
            raise TypeError
    except (ValueError, KeyError, TypeError):
        raise ChangeError(f"{PATH} is not what hwtune writes; run hwtune apply again") from None
    return pairs


def _trusted(place: str) -> bytes:
    try:
        handle = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise ChangeError(f"cannot read {PATH}: {error.strerror}") from None
    with open(handle, "rb") as file:
        folder = os.lstat(os.path.dirname(place))
        status = os.fstat(handle)
        for of, name in ((status, PATH), (folder, os.path.dirname(PATH))):
            if of.st_uid != os.geteuid() or stat.S_IMODE(of.st_mode) & 0o022:
                raise ChangeError(f"others than root may write {name}; nothing of it is done")
        if not stat.S_ISREG(status.st_mode) or not stat.S_ISDIR(folder.st_mode):
            raise ChangeError(f"{PATH} is no regular file in a folder of its own")
        content = file.read(_LIMIT + 1)
    if len(content) > _LIMIT:
        raise ChangeError(f"{PATH} is larger than any list of hwtune's")
    return content


if __name__ == "__main__":
    sys.exit(main())
