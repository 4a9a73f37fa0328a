"""The pasted texts of a snapshot: found, cleaned and recognised, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.fact import Fact
from hwtune.host import prompts, recognise, walk
from hwtune.host.base import Document

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from hwtune.host.captured import Tree
    from hwtune.host.limits import Limits

# Folders at a machine's root that hold no pasted texts. Logs (/var/log) and what reports add
# (sos_commands, commands...) are looked into.
_OF_THE_SYSTEM = frozenset(
    (
        "bin",
        "boot",
        "dev",
        "etc",
        "home",
        "lib",
        "lib32",
        "lib64",
        "libraries",
        "lost+found",
        "media",
        "mnt",
        "opt",
        "proc",
        "root",
        "run",
        "sbin",
        "srv",
        "sys",
        "tmp",
        "usr",
    )
)
_MAX_DEPTH = 12


def find(
    tree: Tree,
    top: str,
    root: str | None,
    limits: Limits,
    warn: Callable[[str], None],
    leave_out: Collection[str] = (),
) -> dict[str, list[Document]]:
    """Kind -> documents, in the order of their paths, below ``top``.

    ``root`` is where the machine's own tree begins; its system folders are left out, and so are
    the folders ``leave_out`` in it.
    """
    found: dict[str, list[Document]] = {}
    files = total = too_large = 0
    for path in sorted(_files(tree, top, root, limits, warn, leave_out)):
        size = tree.size(path)
        if files >= limits.document_files or total + size > limits.documents_bytes:
            warn(f"holds more texts than are looked into; those after {path[1:]} were left out")
            break
        if size > limits.document_bytes:
            too_large += 1
            continue
        files += 1
        total += size
        content = tree.read(path, limits.document_bytes)
        if not content.value:
            continue
        text = recognise.clean(content.value)
        for piece in recognise.recognise(text) if text else ():
            place = path[1:] if piece.line == 1 else f"{path[1:]}:{piece.line}"
            command = piece.command or prompts.from_file_name(path.rpartition("/")[2])
            found.setdefault(piece.kind, []).append(Document(piece.kind, place, piece.text, command))
    if too_large:
        many = "1 text" if too_large == 1 else f"{too_large} texts"
        warn(f"left out {many} larger than {limits.document_bytes >> 20} MiB")
    return found


def _files(
    tree: Tree,
    top: str,
    root: str | None,
    limits: Limits,
    warn: Callable[[str], None],
    leave_out: Collection[str],
) -> Iterator[str]:
    """Regular files. No link is followed: what it leads to is either found by itself, or outside."""
    seen = 0
    ahead = [top]
    while ahead:
        folder = ahead.pop()
        entries = tree.entries(folder)
        if isinstance(entries, Fact):
            continue
        seen += len(entries)
        if seen > limits.search_names:
            warn(f"holds more than {limits.search_names:,} names; texts beyond these were not looked for")
            return
        deeper = folder.count("/") - top.count("/") < _MAX_DEPTH
        for name, kind in entries.items():
            if kind == walk.FILE:
                yield f"{folder}/{name}"
            elif kind != walk.DIR or not deeper or name.startswith("."):
                continue
            elif folder != root or not (name in _OF_THE_SYSTEM or name in leave_out):
                ahead.append(f"{folder}/{name}")
