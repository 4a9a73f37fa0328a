"""When ticks arrive: by a rule that the native generator draws from, or as a file recorded them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from hwtune.errors import UsageError
from hwtune.validate.budget import read_regular

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ticks = NDArray[np.void]

KINDS = ("fixed", "poisson", "burst")
RECORDED = "recorded"
BURST = 32
#: a tick of a file: RecordedTick of native/include/hwtune/arrivals.hpp, 48 bytes
FIELDS = (
    ("time_ns", "<u8"),
    ("bid", "<f8"),
    ("ask", "<f8"),
    ("price", "<f8"),
    ("bid_size", "<u4"),
    ("ask_size", "<u4"),
    ("volume", "<u4"),
    ("aggressor", "<u4"),
)
HEADER = ",".join(name for name, _ in FIELDS)
_LARGEST = 1 << 30  # bytes of a file
_MOST = 20_000_000  # ticks
_LONGEST_NS = 7 * 86_400 * 1_000_000_000
_NPY = b"\x93NUMPY"


class Arrivals(msgspec.Struct, frozen=True):
    """``kind``: one of ``KINDS``, or ``RECORDED`` with ``ticks`` (dtype of ``FIELDS``, times since the first
    one). ``rate``: ticks a second, of a recording its mean. ``name``: the kind, or the file's path."""

    kind: str
    name: str
    rate: float
    burst_size: int = BURST
    ticks: Any = None

    @property
    def span_s(self) -> float | None:
        """How long a recording lasts."""
        return None if self.ticks is None else float(self.ticks["time_ns"][-1]) / 1e9

    @property
    def digest(self) -> str:
        """Of the recorded ticks; "" for a kind."""
        if self.ticks is None:
            return ""
        from hashlib import sha256

        return sha256(self.ticks.tobytes()).hexdigest()[:16]


def load(text: str, rate: float | None, usual_rate: float) -> Arrivals:
    """``text``: a kind, or the path of a file. Raises ``UsageError``, one sentence."""
    if text in KINDS:
        wanted = usual_rate if rate is None else rate
        if not 1 <= wanted <= 1e8:
            raise UsageError(f"--rate is a number of ticks a second from 1 to 100,000,000, not {wanted:g}")
        return Arrivals(text, text, wanted)
    if rate is not None:
        raise UsageError(
            f"--rate does not go with the recorded ticks of {text}, which have times of their own"
        )
    ticks = _read(text)
    ticks["time_ns"] -= ticks["time_ns"][0]
    span = float(ticks["time_ns"][-1])
    if span <= 0:
        raise UsageError(f"all ticks of {text} have the same time")
    if span > _LONGEST_NS:
        raise UsageError(f"the ticks of {text} span more than a week; time_ns counts nanoseconds")
    return Arrivals(RECORDED, text, (len(ticks) - 1) * 1e9 / span, ticks=ticks)


def _read(path: str) -> Ticks:
    try:
        content = read_regular(path, _LARGEST)
    except FileNotFoundError:
        raise UsageError(f"--arrivals takes {', '.join(KINDS)} or a file; there is no file {path}") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    if content.startswith(_NPY):
        return _from_npy(content, path)
    return _from_csv(content, path)


# -- numpy's own format ----------------------------------------------------------------------


def _from_npy(content: bytes, path: str) -> Ticks:
    """An array of one dimension with the fields; whole numbers and floats of any width."""
    import io

    import numpy as np

    try:
        array = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    except (ValueError, TypeError, EOFError, SyntaxError, MemoryError, OverflowError) as error:
        told = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(f"{path} is no array of ticks: {told}") from None
    names = array.dtype.names
    wanted = [name for name, _ in FIELDS]
    if array.ndim != 1 or names is None or sorted(names) != sorted(wanted):
        raise UsageError(f"{path} is no array of ticks: its fields should be {HEADER}")
    _count(len(array), path)
    ticks = np.empty(len(array), dtype=list(FIELDS))
    for name, kind in FIELDS:
        column = array[name]
        fits = column.dtype.kind in ("iu" if kind[1] == "u" else "iuf") and column.ndim == 1
        if not fits:
            raise UsageError(f"{path} is no array of ticks: {name} has the type {column.dtype}")
        bad = np.flatnonzero(_outside(column, kind))
        if len(bad):
            raise UsageError(f"{path}, tick {bad[0]}: {name} cannot be {column[bad[0]]}")
        ticks[name] = column
    return _sound(ticks, path, "tick", 0)


def _outside(column: NDArray[Any], kind: str) -> NDArray[Any]:
    """Where a value does not fit what it is to be kept in."""
    import numpy as np

    if kind == "<f8":
        endless: NDArray[Any] = ~np.isfinite(column)
        return endless
    low = column < 0 if column.dtype.kind == "i" else np.zeros(len(column), dtype=bool)
    high: NDArray[Any] = low | (column > np.iinfo(kind).max)
    return high


# -- CSV -------------------------------------------------------------------------------------


def _from_csv(content: bytes, path: str) -> Ticks:
    """numpy's reader is fast and terse; what it refuses is read again line by line, to say where."""
    import io

    import numpy as np

    header, _, body = content.partition(b"\n")
    if header.removeprefix(b"\xef\xbb\xbf").strip().decode("ascii", "replace") != HEADER:
        raise UsageError(f"{path}, line 1: the header should be {HEADER}")
    body = body.replace(b"\r\n", b"\n").rstrip(b"\n")
    lines = body.count(b"\n") + 1 if body else 0
    _count(lines, path)
    try:
        ticks: Ticks = np.loadtxt(
            io.BytesIO(body), delimiter=",", dtype=list(FIELDS), comments=None, ndmin=1, encoding="ascii"
        )
    except (ValueError, OverflowError, UnicodeDecodeError):
        raise UsageError(_blame(body, path)) from None
    if len(ticks) != lines:  # it passes over blank ones
        raise UsageError(_blame(body, path))
    return _sound(ticks, path, "line", 2)


def _blame(body: bytes, path: str) -> str:
    for number, line in enumerate(body.split(b"\n"), 2):
        cells = line.decode("ascii", "replace").split(",")
        if not line.strip():
            return f"{path}, line {number}: it is blank"
        if len(cells) != len(FIELDS):
            return f"{path}, line {number}: it has {len(cells)} values, not {len(FIELDS)} ({HEADER})"
        for (name, kind), cell in zip(FIELDS, cells, strict=True):
            if not _fits(cell.strip(), kind):
                what = "a number" if kind == "<f8" else "a whole number from 0 on that fits"
                return f"{path}, line {number}: {name} should be {what}, not {cell[:40]!r}"
    return f"{path} is no list of ticks ({HEADER})"


def _fits(cell: str, kind: str) -> bool:
    if kind == "<f8":
        try:
            float(cell)
        except ValueError:
            return False
        return "_" not in cell
    bits = 64 if kind == "<u8" else 32
    return cell.isascii() and cell.isdecimal() and len(cell) <= 20 and int(cell) < 1 << bits


# -- both ------------------------------------------------------------------------------------


def _count(count: int, path: str) -> None:
    if count < 2:
        raise UsageError(f"{path} has {count} ticks; at least 2 are needed")
    if count > _MOST:
        raise UsageError(f"{path} has {count:,} ticks; {_MOST:,} at most are taken")


def _sound(ticks: Ticks, path: str, unit: str, first: int) -> Ticks:
    """``first``: the number that the first tick has in ``unit``."""
    import numpy as np

    for name in ("bid", "ask", "price"):
        bad = np.flatnonzero(~np.isfinite(ticks[name]))
        if len(bad):
            raise UsageError(f"{path}, {unit} {bad[0] + first}: {name} is not finite")
    bad = np.flatnonzero(ticks["aggressor"] > 1)
    if len(bad):
        raise UsageError(f"{path}, {unit} {bad[0] + first}: aggressor is 1 for a buyer or 0 for a seller")
    times = ticks["time_ns"]
    bad = np.flatnonzero(times[1:] < times[:-1])
    if len(bad):
        raise UsageError(f"{path}, {unit} {bad[0] + 1 + first}: time_ns is before that of the {unit} above")
    return ticks
