"""Attributes of the kernel: sysfs, procfs, sysctls."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from hwtune.changes.system import ChangeError
from hwtune.changes.targets.base import Target, Value
from hwtune.text.cpulist import format_list, parse_list, parse_mask

if TYPE_CHECKING:
    from hwtune.changes.system import System


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
        try:
            system.write_attribute(self.path, value)
        except ChangeError as error:
            # intel_pstate and amd-pstate refuse a preference while the governor performance forces it
            if error.number == errno.EBUSY and self.same(self.read(system), value):
                return
            raise ChangeError(f"{error}{hint(system, self.path, error.number)}", error.number) from None

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
        path = sysctl_path(key)
        try:
            system.write_attribute(path, number)
        except ChangeError as error:
            raise ChangeError(f"{error}{hint(system, path, error.number)}", error.number) from None


def sysctl_path(key: str) -> str:
    """The file of a sysctl; slashes and dots change places in it (sysctl.d(5))."""
    return "/proc/sys/" + key.translate(str.maketrans("./", "/."))


_LOCKDOWN = "/sys/kernel/security/lockdown"


def hint(system: System, path: str, number: int) -> str:
    """What to do about the errno of a write, as the end of a sentence; "" where that is plain."""
    if number == errno.EROFS:
        return "; set it on the host, whose kernel a container shares"
    if number in (errno.EPERM, errno.EACCES):
        locked = system.attribute(_LOCKDOWN)
        if locked.known and "[none]" not in locked.get():
            return "; the kernel is locked down (Secure Boot)"
        if path.startswith("/sys/module/pcie_aspm/"):
            return "; the firmware or pcie_aspm=off keeps the kernel from ASPM, so that BIOS setup has it"
        return "; the kernel or a container's host does not let even root change it"
    if number == errno.EBUSY and path.endswith("/energy_performance_preference"):
        return "; the governor performance already forces it"
    if number == errno.EINVAL:
        return "; this kernel or driver does not take the value"
    if number == errno.ENODEV:
        return "; the device or its driver is gone"
    return ""
