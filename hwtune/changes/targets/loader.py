"""Kernel arguments of loaders whose entries are changed one by one: by grubby, by rpm-ostree, and by
editing the entries of systemd-boot.

A target is all arguments of one name (or of a pair of names that belong together) in all entries.
Its value has ``entries``: entry -> the texts of its arguments of that name, and ``files``: what the
loader's files held, so that the way back can put the very bytes there where only the order of the
arguments differs. What hwtune wants has ``all``: the texts for every entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwtune.changes import boot_loader
from hwtune.changes.system import ChangeError, FileState, decode_file, encode_file
from hwtune.changes.targets.base import Target, Value
from hwtune.text import cmdline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hwtune.changes.system import System

_ENTRIES = "/boot/loader/entries"
_KERNEL_CMDLINE = "/etc/kernel/cmdline"
# Where the EFI system partition or the extended boot loader partition is mounted (bootctl(1)).
_ESPS = ("/efi", "/boot", "/boot/efi")
# what grubby may write: entries of the Boot Loader Specification, and what new ones are made from
_OF_GRUBBY = (_KERNEL_CMDLINE, "/etc/default/grub", "/boot/grub2/grubenv")
_GRUBBY_TIMEOUT_S = 120.0


class LoaderArgument(Target):
    """``names``: canonical, separated by a blank."""

    kind = "kernel-argument"
    lasting = True
    at_boot = True
    atomic = False

    def __init__(self, backend: str, names: str) -> None:
        if backend not in _BACKENDS:
            raise ChangeError(f"this version knows no {backend}")
        self.backend = backend
        self.names = names.split()

    @property
    def key(self) -> str:
        return f"kernel-argument {self.backend} {' '.join(self.names)}"

    def read(self, system: System) -> Value:
        loader = _BACKENDS[self.backend]
        entries = {
            entry: [a.text for a in cmdline.parse(options) if a.name in self.names]
            for entry, options in loader.entries(system).items()
        }
        if not entries:
            raise ChangeError(f"{self.backend} shows no boot entry")
        return {"entries": entries, "files": {path: _state(system, path) for path in loader.files(system)}}

    def write(self, system: System, value: Value) -> None:
        loader = _BACKENDS[self.backend]
        options = loader.entries(system)
        wanted = _per_entry(value, options)
        present = {e: [a.text for a in cmdline.parse(o) if a.name in self.names] for e, o in options.items()}
        for entry, line in options.items():
            if wanted[entry] != present[entry]:
                boot_loader.check_length(line, self.names, wanted[entry])
        changing = {e: texts for e, texts in wanted.items() if texts != present[e]}
        if changing:
            loader.change(system, self.names, present, changing)
        for path, saved in value.get("files", {}).items():
            _put_back(system, path, saved, self.names)

    def same(self, one: Value, other: Value) -> bool:
        if one is None or other is None:
            return one is other
        entries = one.get("entries") or other.get("entries") or {"": []}
        return _per_entry(one, entries) == _per_entry(other, entries)

    def between(self, now: Value, one: Value, other: Value) -> bool:
        if now is None or one is None or other is None:
            return False
        present = now["entries"]
        first, second = _per_entry(one, present), _per_entry(other, present)
        return all(texts in (first[entry], second[entry]) for entry, texts in present.items())

    def running(self, system: System, value: Value) -> Value:
        fact = system.host.text("/proc/cmdline")
        if not fact.known:
            return None
        texts = [a.text for a in cmdline.parse(fact.get()) if a.name in self.names]
        return value if texts == value.get("all") else {"all": texts}

    def tidy(self, system: System) -> None:
        for path in _BACKENDS[self.backend].files(system):
            system.discard_temporary(path)

    def show(self, value: Value) -> str:
        if value is None:
            return "absent"
        shown = [
            " ".join(texts) or "not given" for texts in value.get("entries", {"": value.get("all")}).values()
        ]
        return " / ".join(dict.fromkeys(shown))


def _per_entry(value: Any, entries: Any) -> dict[str, list[str]]:
    """What ``value`` says for each of the entries; one that it does not know (a kernel that was
    installed since) has what most others have."""
    if "all" in value:
        return {entry: list(value["all"]) for entry in entries}
    known: dict[str, list[str]] = value["entries"]
    texts = list(known.values())
    usual = max(texts, key=texts.count) if texts else []
    return {entry: list(known.get(entry, usual)) for entry in entries}


def _state(system: System, path: str) -> Any:
    return encode_file(system.file(path))


def _put_back(system: System, path: str, saved: Any, names: Sequence[str]) -> None:
    """Write the saved bytes where the file differs in these arguments and in the order of words only."""
    now, then = system.file(path), decode_file(saved)
    if now is None or then is None or now.content == then.content:
        return
    if _others(now.content, names) == _others(then.content, names):
        system.write_file(path, then)


def _others(content: bytes, names: Sequence[str]) -> list[str]:
    # of grubenv the filling of "#" is no content; quotes stand beside a first or last argument
    text = content.decode("utf-8", "surrogateescape").replace('"', " ").replace("'", " ")
    return sorted(word for word in text.split() if word.strip("#") and cmdline.name(word) not in names)


class _Grubby:
    """grubby knows its distribution's ways (BLS snippets, grubenv, zipl) better than we could."""

    def entries(self, system: System) -> dict[str, str]:
        found: dict[str, str] = {}
        kernel = ""
        for line in system.run(["grubby", "--info=ALL"], _GRUBBY_TIMEOUT_S).stdout.splitlines():
            name, _, value = line.partition("=")
            if name == "kernel":
                kernel = value.strip().strip('"')
            elif name == "args" and kernel:
                found[kernel] = value.strip().removeprefix('"').removesuffix('"')
        return found

    def files(self, system: System) -> list[str]:
        names = system.host.names(_ENTRIES)
        entries = [f"{_ENTRIES}/{n}" for n in names.get() if n.endswith(".conf")] if names.known else []
        return [*entries, *(p for p in _OF_GRUBBY if system.file(p) is not None)]

    def change(
        self,
        system: System,
        names: Sequence[str],
        present: dict[str, list[str]],
        wanted: dict[str, list[str]],
    ) -> None:
        final = {**present, **wanted}
        alike = len({tuple(texts) for texts in final.values()}) == 1
        for kernel, texts in [("ALL", next(iter(final.values())))] if alike else wanted.items():
            old = [t for e, found in present.items() if kernel in ("ALL", e) for t in found]
            if old:
                given = dict.fromkeys(text.partition("=")[0] for text in old)
                self._run(system, kernel, f"--remove-args={' '.join(given)}")
            if texts:
                self._run(system, kernel, f"--args={' '.join(texts)}")

    def _run(self, system: System, kernel: str, argument: str) -> None:
        system.run(["grubby", f"--update-kernel={kernel}", argument], _GRUBBY_TIMEOUT_S)


class _Ostree:
    """Each change makes a new deployment, which the next boot takes."""

    def entries(self, system: System) -> dict[str, str]:
        said = system.run(["rpm-ostree", "kargs"], 60.0).stdout.strip().splitlines()
        return {"deployment": said[-1]} if said else {}

    def files(self, system: System) -> list[str]:
        return []

    def change(
        self,
        system: System,
        names: Sequence[str],
        present: dict[str, list[str]],
        wanted: dict[str, list[str]],
    ) -> None:
        old, new = present["deployment"], wanted["deployment"]
        system.run(
            ["rpm-ostree", "kargs", *(f"--delete={t}" for t in old), *(f"--append={t}" for t in new)], 600.0
        )


class _SystemdBoot:
    """The entries are plain files (Boot Loader Specification, type 1), and new ones are made by
    kernel-install from /etc/kernel/cmdline, or without it from the command line that was booted."""

    def entries(self, system: System) -> dict[str, str]:
        found = {}
        for path in self.files(system):
            text = self._text(system, path)
            found[path] = " ".join(text[start:end] for start, end in _options(path, text))
        return found

    def files(self, system: System) -> list[str]:
        found = []
        for esp in _ESPS:
            names = system.host.names(f"{esp}/loader/entries")
            for name in names.get() if names.known else ():
                path = f"{esp}/loader/entries/{name}"
                if name.endswith(".conf") and path not in found and self._boots_linux(system, path):
                    found.append(path)
            if found:
                break
        if found and system.file(_KERNEL_CMDLINE) is not None:
            found.append(_KERNEL_CMDLINE)
        return found

    def change(
        self,
        system: System,
        names: Sequence[str],
        present: dict[str, list[str]],
        wanted: dict[str, list[str]],
    ) -> None:
        for path, texts in wanted.items():
            state = system.file(path)
            if state is None:
                raise ChangeError(f"{path} is gone")
            text = edit(path, self._text(system, path), names, texts)
            system.write_file(path, FileState(text.encode("utf-8", "surrogateescape"), *state[1:]))

    def _boots_linux(self, system: System, path: str) -> bool:
        text = self._text(system, path)
        return any(line.split(None, 1)[:1] == ["linux"] for line in text.splitlines())

    def _text(self, system: System, path: str) -> str:
        state = system.file(path)
        return "" if state is None else state.content.decode("utf-8", "surrogateescape")


def _options(path: str, text: str) -> list[tuple[int, int]]:
    """Where the arguments stand: the lines of kernel-install's file, else those of "options"."""
    places = []
    start = 0
    for line in text.splitlines(keepends=True):
        body = line.rstrip("\r\n")
        words = body.split(None, 1)
        if path == _KERNEL_CMDLINE:
            if words and not words[0].startswith("#"):
                places.append((start, start + len(body)))
        elif words and words[0] == "options":
            rest = words[1] if len(words) > 1 else ""
            places.append((start + len(body) - len(rest), start + len(body)))
        start += len(line)
    return places


def edit(path: str, text: str, names: Sequence[str], texts: Sequence[str]) -> str:
    """The file with these arguments in place of those of the names; all else byte for byte."""
    places = _options(path, text)
    added = " ".join(texts)
    if not places:
        if not added:
            return text
        line = added if path == _KERNEL_CMDLINE else f"options {added}"
        return f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}{line}\n"
    for number, (start, end) in reversed(list(enumerate(places))):
        line = cmdline.without(text[start:end], names)
        if added and number == len(places) - 1:
            line = f"{line} {added}" if line.strip() else added
            if start and not text[start - 1].isspace():  # a key with nothing after it
                line = f" {line}"
        text = text[:start] + line + text[end:]
    return text


_BACKENDS: dict[str, _Grubby | _Ostree | _SystemdBoot] = {
    boot_loader.GRUBBY: _Grubby(),
    boot_loader.OSTREE: _Ostree(),
    boot_loader.SYSTEMD_BOOT: _SystemdBoot(),
}
