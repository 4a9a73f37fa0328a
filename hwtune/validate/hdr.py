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
    from hwtune._native import Histogram

_HEAD = struct.Struct(">II")
_COOKIE = 0x1C849304
_WORD = 0x10  # in the cookie since counts have no fixed width; written by all, and not looked at
# Its header and nine bytes for each count of a histogram of all 64-bit values at three digits.
_LONGEST = 40 + 9 * 54 * 1024


def to_base64(histogram: Histogram) -> str:
    packed = zlib.compress(histogram.encode())
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
