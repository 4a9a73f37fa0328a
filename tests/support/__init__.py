"""Fake machines for tests: trees of files, opened through the real snapshot host."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from hwtune.host.base import CommandResult, Host

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path


class Link(NamedTuple):
    """A symbolic link, with its target as it is written ("../../devices/...")."""

    target: str


class Directory(NamedTuple):
    """A directory with nothing in it."""


class Gap(NamedTuple):
    """A file that is there and could not be read (``hwtune.fact`` names the kinds)."""

    kind: str
    detail: str = ""


Content = str | bytes | Link | Directory


def tree(root: Path, files: Mapping[str, str | bytes | Link | Directory]) -> Path:
    """A folder with these files ("/sys/..": content); parents are made as needed."""
    for path, content in files.items():
        place = root / path.lstrip("/")
        if isinstance(content, Directory):
            place.mkdir(parents=True, exist_ok=True)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Link):
            place.symlink_to(content.target)
        elif isinstance(content, bytes):
            place.write_bytes(content)
        else:
            place.write_text(content, encoding="utf-8")
    root.mkdir(parents=True, exist_ok=True)
    return root


def host(
    tmp_path: Path,
    files: Mapping[str, str | bytes | Link | Directory | Gap],
    absent: Iterable[str] = (),
    *,
    complete: bool = False,
    commands: Mapping[Sequence[str], CommandResult | str | Gap] | None = None,
    libraries: Mapping[Sequence[Any], Any] | None = None,
    documents: Mapping[str, str] | None = None,
    captured_at: float | None = None,
) -> Host:
    """A snapshot of these files, opened.

    What is not among ``files`` is NOT_CAPTURED, except ``absent`` paths (and all that lies
    below them), which are ABSENT; with ``complete`` everything else is ABSENT, as on a live host.
    ``commands``: argument tuple -> result (a bare string is the output of a success).
    ``libraries``: (library, *arguments) -> answer. ``documents``: file name -> pasted text.
    """
    from hwtune.host.snapshot import open_snapshot

    folder = _free(tmp_path, "snapshot")
    # What could not be read is there all the same: an empty file stands for it.
    tree(folder, {path: "" if isinstance(content, Gap) else content for path, content in files.items()})
    gaps = {path: list(content) for path, content in files.items() if isinstance(content, Gap)}
    gaps.update({path: ["absent", ""] for path in absent})
    manifest: dict[str, Any] = {"tool": "hwtune", "format": 1, "complete": complete}
    if captured_at is not None:
        manifest["captured_at"] = captured_at
    _write_json(folder / "manifest.json", manifest)
    bare = open_snapshot(str(folder))
    _write_json(
        folder / "manifest.json", manifest | {"gaps": {_real(bare, path): gaps[path] for path in gaps}}
    )
    for number, (argv, result) in enumerate((commands or {}).items()):
        _write_json(folder / "commands" / f"{number:04d}.json", {"argv": list(argv), **_command(result)})
    for number, (question, answer) in enumerate((libraries or {}).items()):
        library, *arguments = question
        said = {"gap": list(answer)} if isinstance(answer, Gap) else {"value": answer}
        _write_json(
            folder / "libraries" / f"{number:04d}.json", {"library": library, "arguments": arguments, **said}
        )
    tree(folder / "documents", documents or {})
    return open_snapshot(str(folder))


def _free(parent: Path, name: str) -> Path:
    """A folder that no other host of the same test has."""
    number = 0
    while (parent / f"{name}{number or ''}").exists():
        number += 1
    return parent / f"{name}{number or ''}"


def _real(host: Host, path: str) -> str:
    """The path with every link among its parents followed: what a manifest goes by."""
    parent, _, name = path.rpartition("/")
    return f"{host.resolve(parent).value or parent}/{name}".replace("//", "/")


def _command(result: CommandResult | str | Gap) -> dict[str, Any]:
    if isinstance(result, Gap):
        return {"gap": list(result)}
    if isinstance(result, str):
        result = CommandResult(0, result, "")
    return result._asdict()


def _write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
