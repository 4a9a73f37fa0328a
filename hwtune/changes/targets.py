"""What can be read, set and put back: the places where a change takes hold.

A target has a ``key`` (its name in the journal), reads its present value, writes one, and knows
when two values mean the same. Values are what JSON can hold; ``None`` is the value of a place
that does not exist (a file that hwtune is to make, a device that is gone).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from hwtune.changes.system import ChangeError, decode_file, encode_file
from hwtune.text.cpulist import format_list, parse_list, parse_mask

if TYPE_CHECKING:
    from hwtune.changes.system import System

Value = Any


class Target(ABC):
    """One place. ``key`` is "KIND REST" and is all that ``from_key`` needs to make it again."""

    kind: str

    @property
    @abstractmethod
    def key(self) -> str: ...

    @abstractmethod
    def read(self, system: System) -> Value:
        """The value now. Raises ``ChangeError`` when it cannot be read."""

    @abstractmethod
    def write(self, system: System, value: Value) -> None:
        """Make it so. Raises ``ChangeError`` when it cannot be written."""

    def same(self, one: Value, other: Value) -> bool:
        return bool(one == other)

    def show(self, value: Value) -> str:
        """The value for a person, in one line."""
        return "absent" if value is None else str(value)


class Attribute(Target):
    """One attribute of sysfs or procfs. ``form`` says how the kernel writes it: "text" (words
    and numbers), "choice" ("[a] b c"), "list" (a CPU list) or "mask" (hexadecimal)."""

    kind = "attribute"

    def __init__(self, path: str, form: str = "text") -> None:
        self.path = path
        self.form = form

    @property
    def key(self) -> str:
        return f"attribute {self.form} {self.path}"

    def read(self, system: System) -> Value:
        fact = system.attribute(self.path)
        if fact.absent:
            return None
        if not fact.known:
            raise ChangeError(fact.why())
        text = fact.get()
        if self.form == "choice" and "[" in text:
            return text.partition("[")[2].partition("]")[0]
        return " ".join(text.split())

    def write(self, system: System, value: Value) -> None:
        if value is None:
            raise ChangeError(f"{self.path} cannot be removed")
        system.write_attribute(self.path, value)

    def same(self, one: Value, other: Value) -> bool:
        if one is None or other is None:
            return one is other
        try:
            if self.form == "list":
                return parse_list(one) == parse_list(other)
            if self.form == "mask":
                return parse_mask(one) == parse_mask(other)
        except ValueError:  # not in the form it should have: compare as it stands
            return bool(one == other)
        return bool(one == other)

    def show(self, value: Value) -> str:
        if value is not None and self.form == "mask":
            try:
                return f"{value} (CPUs {format_list(parse_mask(value)) or 'none'})"
            except ValueError:
                return str(value)
        return super().show(value)


class ExclusiveSysctls(Target):
    """Two sysctls of which setting one clears the other (vm.dirty_bytes and vm.dirty_ratio). The
    value is the one in force with its number; writing a 0 to the other is refused by the kernel,
    and not needed (Linux Documentation/admin-guide/sysctl/vm.rst)."""

    kind = "exclusive"

    def __init__(self, keys: tuple[str, str]) -> None:
        self.keys = keys

    @property
    def key(self) -> str:
        return f"exclusive {self.keys[0]} {self.keys[1]}"

    def read(self, system: System) -> Value:
        found: dict[str, str] = {}
        for key in self.keys:
            fact = system.attribute(sysctl_path(key))
            if fact.absent:
                return None
            if not fact.known:
                raise ChangeError(fact.why())
            found[key] = fact.get()
        active = [k for k in self.keys if found[k] != "0"]
        # both 0 is a ratio of nothing: the second is then the one in force (bytes 0 means "not used")
        key = active[0] if active else next((k for k in self.keys if "bytes" not in k), self.keys[1])
        return f"{key} = {found[key]}"

    def write(self, system: System, value: Value) -> None:
        key, _, number = str(value).partition(" = ")
        if key not in self.keys:
            raise ChangeError(f"{value} names none of {', '.join(self.keys)}")
        system.write_attribute(sysctl_path(key), number)


class OwnedFile(Target):
    """A file that hwtune writes whole. The value is its encoded state (``encode_file``)."""

    kind = "file"

    def __init__(self, path: str) -> None:
        self.path = path

    @property
    def key(self) -> str:
        return f"file {self.path}"

    def read(self, system: System) -> Value:
        return encode_file(system.file(self.path))

    def write(self, system: System, value: Value) -> None:
        state = decode_file(value)
        if state is None:
            system.remove_file(self.path)
        else:
            system.write_file(self.path, state)

    def show(self, value: Value) -> str:
        if value is None:
            return "no file"
        return f"{len(value['text'].splitlines())} lines" if "text" in value else "binary"


class Directory(Target):
    """A directory that hwtune needs; removed on the way back when hwtune made it and it is empty."""

    kind = "directory"

    def __init__(self, path: str) -> None:
        self.path = path

    @property
    def key(self) -> str:
        return f"directory {self.path}"

    def read(self, system: System) -> Value:
        return "present" if system.directory(self.path) else None

    def write(self, system: System, value: Value) -> None:
        if value is None:
            system.remove_directory(self.path)
        else:
            system.make_directory(self.path)


class Unit(Target):
    """A systemd unit: "enabled active", as is-enabled and is-active say."""

    kind = "unit"
    _ACTIVE = ("active", "activating", "reloading")

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def key(self) -> str:
        return f"unit {self.name}"

    def read(self, system: System) -> Value:
        enabled = self._ask(system, "is-enabled")
        if enabled in ("not-found", ""):
            return None
        return f"{enabled} {'active' if self._ask(system, 'is-active') in self._ACTIVE else 'inactive'}"

    def write(self, system: System, value: Value) -> None:
        if value is None:
            raise ChangeError(f"unit {self.name} cannot be removed")
        enabled, _, active = str(value).partition(" ")
        now = (self.read(system) or "").partition(" ")[0]
        if now == "masked" and enabled != "masked":
            system.run(["systemctl", "unmask", self.name])
            now = self._ask(system, "is-enabled")
        if active == "inactive":
            system.run(["systemctl", "stop", self.name])
        if enabled != now:
            # what has no [Install] section (static, generated) is neither enabled nor disabled
            verb = {"enabled": "enable", "disabled": "disable", "masked": "mask"}.get(enabled)
            if verb is not None:
                system.run(["systemctl", verb, self.name])
        if active == "active":
            system.run(["systemctl", "start", self.name])

    def _ask(self, system: System, verb: str) -> str:
        answer = system.host.command(["systemctl", verb, self.name])
        if answer.absent:
            raise ChangeError("systemctl is not installed: this machine has no systemd")
        if not answer.known:
            raise ChangeError(answer.why())
        return answer.get().stdout.strip()


def sysctl_path(key: str) -> str:
    """The file of a sysctl; slashes and dots change places in it (sysctl.d(5))."""
    return "/proc/sys/" + key.translate(str.maketrans("./", "/."))
