"""Where built engines are kept: one file for each model on each GPU, driver and TensorRT, and one of kernel
timings.

A plan is code that runs, so that it is taken from a folder only that is the user's own and nobody else's to
write.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec

# The driver's own version; where it isn't, what CUDA says it serves stands in for it.
_VERSION = Path("/sys/module/nvidia/version")


class Key(msgspec.Struct, frozen=True):
    """All that a plan depends on (NvInfer.h: plans and timing caches are tied to the version and the device).
    ``model``: a digest of the model and of what is asked of it."""

    model: str
    gpu: str
    capability: str
    driver: str
    tensorrt: str

    def plan(self) -> str:
        return f"{_digest(self)}.plan"

    def timings(self) -> str:
        """The same for all models."""
        return f"{_digest(msgspec.structs.replace(self, model=''))}.timings"


def _digest(key: Key) -> str:
    return sha256(msgspec.json.encode(key)).hexdigest()[:32]


def driver_version(cuda: int) -> str:
    try:
        return _VERSION.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return f"CUDA {cuda}"


def folder() -> Path:
    """XDG Base Directory Specification: a relative XDG_CACHE_HOME is to be ignored."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(given) if os.path.isabs(given) else Path.home() / ".cache"
    return base / "hwtune" / "tensorrt"


def read(name: str, place: Path | None = None) -> bytes | None:
    """None where there is none, or where somebody else could have written it."""
    place = folder() if place is None else place
    try:
        if not _own(place.stat()):
            return None
        with open(place / name, "rb") as file:
            return file.read() if _own(os.fstat(file.fileno())) else None
    except OSError:
        return None


def _own(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def write(name: str, content: bytes, place: Path | None = None) -> str:
    """Whole or not at all. "", or why it could not be kept: the next run builds once more."""
    place = folder() if place is None else place
    temporary = place / f".{name}.{os.getpid()}"
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not _own(place.stat()):
            return f"others may write to {place}"
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        os.replace(temporary, place / name)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        return f"{place / name}: {error.strerror}"
    return ""
