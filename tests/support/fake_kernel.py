"""A kernel, a systemd and a boot loader made of files below a root, for tests that change and crash.

Every change that they make is one step, as a kernel's is, and is announced to ``point`` just before.
They use the functions of ``os`` as they were when this module was imported, so that a test that counts
or breaks the program's own system calls does not count or break theirs.
"""

from __future__ import annotations

import errno
import os
import re
from typing import TYPE_CHECKING

from hwtune.changes.system import ATTRIBUTE_TREES, ChangeError, System
from hwtune.host.base import CommandResult
from tests.support.changes import ToolHost, failing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_open, _close, _write, _read = os.open, os.close, os.write, os.read
_rename, _unlink, _makedirs = os.rename, os.unlink, os.makedirs

_PAIRS = {
    f"/proc/sys/vm/{stem}_{one}": f"/proc/sys/vm/{stem}_{other}"
    for stem in ("dirty", "dirty_background")
    for one, other in (("bytes", "ratio"), ("ratio", "bytes"))
}
UNITS = "/run/fake-systemd"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
MENU = "/boot/grub/grub.cfg"
DROP_IN = "/etc/default/grub.d/zz-hwtune.cfg"


class FakeKernel(System):
    """``refuse``: path -> errno of a write. ``writes``: the attributes written, in order."""

    def __init__(self, root: str, command_line: str = "root=/dev/vda1 quiet isolcpus=1") -> None:
        super().__init__(root)
        self.refuse: dict[str, int] = {}
        self.writes: list[tuple[str, str]] = []
        #: path -> what else a write to it changes
        self.effects: Mapping[str, Mapping[str, str]] = {}
        self.point: Callable[[str], None] = lambda what: None
        self.configured = command_line
        self.broken: set[str] = set()  # programs that fail
        tools: Mapping[str, object] = {
            "systemctl": self._systemctl,
            "update-grub": self._update_grub,
            "udevadm": self._nothing,
            "irqbalance": lambda argv: "irqbalance version 1.9.4\n",
        }
        self.host = ToolHost(root, tools, {})

    # -- the kernel ---------------------------------------------------------------------

    def write_attribute(self, path: str, value: str) -> None:
        assert path.startswith(ATTRIBUTE_TREES), path
        number = self.refuse.get(path, 0)
        if not number and not os.path.lexists(self.root + path):
            number = errno.ENOENT
        if number:
            raise ChangeError(f"cannot write {path}: {os.strerror(number)}", number)
        now = self.content(path)
        shown = value
        if "[" in now:
            choices = now.replace("[", " ").replace("]", " ").split()
            if value not in choices:
                raise ChangeError(f"cannot write {path}: {os.strerror(errno.EINVAL)}", errno.EINVAL)
            shown = " ".join(f"[{c}]" if c == value else c for c in choices)
        self.writes.append((path, value))
        self.point(f"attribute {path}")
        self.put(path, shown + "\n")
        if path in _PAIRS:
            self.put(_PAIRS[path], "0\n")
        for other, content in self.effects.get(path, {}).items():
            self.put(other, content)

    def content(self, path: str) -> str:
        handle = _open(self.root + path, os.O_RDONLY)
        try:
            return _read(handle, 1 << 20).decode()
        finally:
            _close(handle)

    def put(self, path: str, content: str) -> None:
        """A file as somebody else writes it, in one step."""
        temporary = f"{self.root}.beside"
        handle = _open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            _write(handle, content.encode())
        finally:
            _close(handle)
        _rename(temporary, self.root + path)

    # -- programs -----------------------------------------------------------------------

    def _nothing(self, argv: Sequence[str]) -> str:
        self.point(" ".join(argv))
        return ""

    def _systemctl(self, argv: Sequence[str]) -> CommandResult | str:
        verb, *words = [word for word in argv[1:] if not word.startswith("--")]
        if "systemctl" in self.broken and not verb.startswith("is-"):
            return failing(1, "Failed to connect to bus")
        unit = words[0] if words else ""
        try:
            enabled, active = self.content(f"{UNITS}/{unit}").split() if unit else ("", "")
        except FileNotFoundError:
            enabled, active = "not-found", "inactive"
        if verb == "is-enabled":
            return enabled + "\n"
        if verb == "is-active":
            return active + "\n"
        if verb in ("daemon-reload", "revert", "set-property") or enabled == "not-found":
            return self._nothing(argv)
        states = {"enable": "enabled", "disable": "disabled", "mask": "masked", "unmask": "disabled"}
        enabled = states.get(verb, enabled)
        active = {"start": "active", "stop": "inactive"}.get(verb, active)
        self.point(" ".join(argv))
        self.put(f"{UNITS}/{unit}", f"{enabled} {active}\n")
        return ""

    def _update_grub(self, argv: Sequence[str]) -> CommandResult | str:
        self.point("update-grub")
        if "update-grub" in self.broken:
            return failing(1, "grub-probe: error: cannot find a device for /.")
        self.put(MENU, menu(self.next_command_line()))
        return ""

    def next_command_line(self) -> str:
        """What the drop-in makes of the configured arguments, read without a shell."""
        words = self.configured.split()
        try:
            drop_in = self.content(DROP_IN)
        except FileNotFoundError:
            return " ".join(words)
        names = re.search(r'hwtune_without "\$GRUB_CMDLINE_LINUX_DEFAULT" (.*)', drop_in)
        added = re.search(r'GRUB_CMDLINE_LINUX_DEFAULT="\$GRUB_CMDLINE_LINUX_DEFAULT (.*)"', drop_in)
        assert names is not None
        gone = names[1].split()
        words = [w for w in words if w.partition("=")[0].replace("-", "_") not in gone]
        return " ".join(words + (added[1].split() if added is not None else []))


def menu(command_line: str) -> str:
    return f"set default=\"0\"\nmenuentry 'Debian' --id 'd' {{\n\tlinux /vmlinuz {command_line}\n}}\n"


class Tree:
    """A folder that can be put back to a state in a moment. Times are no part of a state."""

    def __init__(self, root: str) -> None:
        self.root = root

    def state(self) -> dict[str, tuple[str, str | bytes, int]]:
        """Path below the root -> (kind, content, mode with owner and group)."""
        found: dict[str, tuple[str, str | bytes, int]] = {}
        pending = [self.root]
        while pending:
            folder = pending.pop()
            with os.scandir(folder) as entries:
                for entry in entries:
                    path = entry.path[len(self.root) :]
                    status = entry.stat(follow_symlinks=False)
                    mode = status.st_mode & 0o7777 | status.st_uid << 12 | status.st_gid << 44
                    if entry.is_symlink():
                        found[path] = ("link", os.readlink(entry.path), 0)
                    elif entry.is_dir():
                        found[path] = ("folder", "", mode)
                        pending.append(entry.path)
                    else:
                        with open(entry.path, "rb") as file:
                            found[path] = ("file", file.read(), mode)
        return found

    def restore(self, wanted: Mapping[str, tuple[str, str | bytes, int]]) -> None:
        now = self.state()
        for path in sorted(now, reverse=True):
            if now[path] != wanted.get(path):
                place = self.root + path
                if now[path][0] != "folder":
                    _unlink(place)
                elif path not in wanted:
                    os.rmdir(place)
        for path in sorted(wanted):
            if now.get(path) != wanted[path]:
                self._make(self.root + path, *wanted[path])

    def _make(self, place: str, kind: str, content: str | bytes, mode: int) -> None:
        if kind == "link":
            os.symlink(content, place)
            return
        if kind == "folder":
            _makedirs(place, exist_ok=True)
        else:
            with open(place, "wb") as file:
                file.write(content if isinstance(content, bytes) else content.encode())
        os.chmod(place, mode & 0o7777)
        os.chown(place, mode >> 12 & 0xFFFFFFFF, mode >> 44)
