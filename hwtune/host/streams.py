"""Compressed files read in pieces of a bounded size, known by their first bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import BinaryIO

_INPUT = 1 << 16
_OUTPUT = 1 << 18
# Compressed parts without content, one after another. Nobody writes more than one of them, and each
# costs the making of a decompressor.
_EMPTY_PARTS = 1000
# What a decompressor may ask for. xz -9 needs 65 MiB, zstd --long=27 needs 128 MiB.
_DECODER_MEMORY = 192 << 20


class Damaged(Exception):
    """The compressed data make no sense, or end before their end."""


class Stream:
    """Bytes of a file, decompressed where its first bytes say so."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._input = file.read(_INPUT)
        #: "" where the file is not compressed
        self.compression = _compression(self._input)
        self._new = {"gzip": _Gzip, "bzip2": _bzip2, "xz": _xz, "zstd": _Zstd}.get(self.compression)
        self._decoder: Any = self._new() if self._new else None

    def piece(self) -> bytes:
        """The next bytes, some MiB at most; b"" at the end. Raises ``Damaged`` and ``OSError``."""
        if self._decoder is None:
            piece, self._input = self._input, b""
            return piece or self._file.read(_OUTPUT)
        try:
            return self._decompress()
        except OSError as error:
            if error.errno is not None:
                raise
            raise Damaged(str(error)) from error  # bz2's way to say that the data are invalid
        except Damaged:
            raise
        except MemoryError as error:  # lzma's way to say that more memory is asked for than allowed
            raise Damaged("it asks for too much memory") from error
        except Exception as error:  # zlib.error, lzma.LZMAError, zstandard.ZstdError, EOFError
            raise Damaged(str(error)) from error

    def _decompress(self) -> bytes:
        empty = 0
        while True:
            decoder = self._decoder
            if decoder.eof:
                if not self._next_member():
                    return b""
                empty += 1
                if empty > _EMPTY_PARTS:
                    raise Damaged("it has too many empty parts")
                continue
            if not self._input and decoder.needs_input:
                self._input = self._file.read(_INPUT)
                if not self._input:
                    raise EOFError("the compressed data end too early")
            given, self._input = self._input, b""
            piece: bytes = decoder.decompress(given, _OUTPUT)
            if piece:
                return piece

    def _next_member(self) -> bool:
        """Whether another compressed part follows (as of ``cat a.gz b.gz``); else what follows is
        padding."""
        rest: bytes = self._decoder.unused_data or self._file.read(_INPUT)
        if len(rest) < 6:
            rest += self._file.read(_INPUT)
        if _compression(rest) != self.compression:
            return False
        self._input = rest
        self._decoder = self._new()  # type: ignore[misc]
        return True


def _compression(head: bytes) -> str:
    if head[:2] == b"\x1f\x8b":
        return "gzip"
    if head[:3] == b"BZh" and head[4:10] in (b"1AY&SY", b"\x17rE8P\x90"):
        return "bzip2"
    if head[:6] == b"\xfd7zXZ\x00":
        return "xz"
    if head[:4] == b"\x28\xb5\x2f\xfd":
        return "zstd"
    return ""


class _Gzip:
    """zlib's decompressor in the manner of bz2's: bounded output, ``needs_input``."""

    def __init__(self) -> None:
        import zlib

        self._inner = zlib.decompressobj(31)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, limit: int) -> bytes:
        piece = self._inner.decompress(self._inner.unconsumed_tail + data, limit)
        # Output may wait inside zlib even when all input is taken: only a piece below the limit
        # shows that it wants more.
        self.needs_input = not self._inner.unconsumed_tail and len(piece) < limit
        return piece


class _Zstd:
    """zstandard's decompressor in the same manner. It has no bound on what comes out of a call,
    so that little goes in: a block of 128 KiB may take four bytes (RFC 8878, RLE_Block)."""

    _STEP = 512

    def __init__(self) -> None:
        import zstandard

        self._inner = zstandard.ZstdDecompressor(max_window_size=_DECODER_MEMORY).decompressobj()
        self._held = b""
        self._at = 0
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data + self._held[self._at :]

    def decompress(self, data: bytes, limit: int) -> bytes:
        if data:
            self._held, self._at = self._held[self._at :] + data, 0
        given = self._held[self._at : self._at + self._STEP]
        self._at += len(given)
        self.needs_input = self._at >= len(self._held)
        return self._inner.decompress(given)


def _bzip2() -> Any:
    import bz2

    return bz2.BZ2Decompressor()


def _xz() -> Any:
    import lzma

    return lzma.LZMADecompressor(lzma.FORMAT_XZ, _DECODER_MEMORY)
