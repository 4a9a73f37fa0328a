"""Histograms as other tools exchange them: HdrHistogram's V2 format, compressed by zlib, in base64.

The layout (HdrHistogram's AbstractHistogram.encodeIntoCompressedByteBuffer): a cookie and the length of what
follows, 32 bits each, big-endian; then a zlib stream of the uncompressed form.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hwtune._native import Histogram

_HEAD = struct.Struct(">II")
_COOKIE = 0x1C849304
# Of the uncompressed form: cookie, length of the counts, offset, digits, lowest and highest value, ratio.
_PLAIN = struct.Struct(">IIIIQQd")
_PLAIN_COOKIE = 0x1C849303
_HIGHEST = 100_000_000_000  # ns
_WORD = 0x10  # in the cookie since counts have no fixed width; written by all, and not looked at
# Its header and nine bytes for each count of a histogram of all 64-bit values at three digits.
_LONGEST = 40 + 9 * 54 * 1024


def to_base64(histogram: Histogram) -> str:
    return _packed(histogram.encode())


def counts_to_base64(counts: Sequence[int]) -> str:
    """The same of the counts alone, by bucket."""
    payload = bytearray()
    zeros = 0
    for count in counts:
        if count == 0:
            zeros += 1
            continue
        if zeros:
            _append(payload, 0 if zeros == 1 else -zeros)
            zeros = 0
        _append(payload, count)
    if not payload:
        payload.append(0)
    return _packed(_PLAIN.pack(_PLAIN_COOKIE | _WORD, len(payload), 0, 3, 1, _HIGHEST, 1.0) + payload)


def _append(payload: bytearray, value: int) -> None:
    """Zigzag, then 7 bits a byte, the lowest first."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    while rest > 0x7F:
        payload.append(rest & 0x7F | 0x80)
        rest >>= 7
    payload.append(rest)


def _packed(plain: bytes) -> str:
    packed = zlib.compress(plain)
    return base64.b64encode(_HEAD.pack(_COOKIE | _WORD, len(packed)) + packed).decode("ascii")


def from_base64(text: str) -> Histogram:
    """For text from anywhere; what it unpacks to is bounded.

    Raises:
        ValueError: it is no such histogram, or has another precision.
    """
    from hwtune._native import Histogram

    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError(f"the histogram is not base64: {error}") from None
    if len(data) < _HEAD.size:
        raise ValueError(f"a compressed histogram has at least {_HEAD.size} bytes, and here are {len(data)}")
    cookie, length = _HEAD.unpack_from(data)
    if cookie & ~0xF0 != _COOKIE:
        raise ValueError("this is no histogram in HdrHistogram's compressed format V2")
    if length != len(data) - _HEAD.size:
        raise ValueError("the compressed histogram's header and its size disagree")
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(data[_HEAD.size :], _LONGEST)
    except zlib.error as error:
        raise ValueError(f"the compressed histogram is damaged: {error}") from None
    if not stream.eof or stream.unused_data:
        raise ValueError("the compressed histogram is cut off, or longer than a histogram can be")
    return Histogram.decode(plain)
