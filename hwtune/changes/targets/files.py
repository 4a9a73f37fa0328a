"""Files and directories that are hwtune's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.changes.system import decode_file, encode_file
from hwtune.changes.targets.base import Target, Value

if TYPE_CHECKING:
    from hwtune.changes.system import System


class OwnedFile(Target):
    """A file that hwtune writes whole. The value is its encoded state (``encode_file``)."""

    kind = "file"
    lasting = True

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

    def tidy(self, system: System) -> None:
        system.discard_temporary(self.path)

    def show(self, value: Value) -> str:
        if value is None:
            return "no file"
        return f"{len(value['text'].splitlines())} lines" if "text" in value else "binary"


class OwnedLink(Target):
    """A symbolic link that hwtune makes, such as one that enables a unit. The value is where it
    leads, as it is written."""

    kind = "link"
    lasting = True

    def __init__(self, path: str) -> None:
        self.path = path

    @property
    def key(self) -> str:
        return f"link {self.path}"

    def read(self, system: System) -> Value:
        return system.link(self.path)

    def write(self, system: System, value: Value) -> None:
        if value is None:
            system.remove_file(self.path)
        else:
            system.write_link(self.path, value)

    def tidy(self, system: System) -> None:
        system.discard_temporary(self.path)

    def show(self, value: Value) -> str:
        return "no link" if value is None else f"a link to {value}"


class Directory(Target):
    """A directory that hwtune needs; removed on the way back when hwtune made it and it is empty."""

    kind = "directory"
    lasting = True

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
