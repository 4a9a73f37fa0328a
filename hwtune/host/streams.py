"""Compressed files read in pieces of a bounded size, known by their first bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

_INPUT = 1 << 16
_OUTPUT = 1 << 18
# What a decompressor may ask for. xz -9 needs 65 MiB, zstd --long=27 needs 128 MiB.
_DECODER_MEMORY = 192 << 20


class Damaged(Exception):
    """The compressed data make no sense, or end before their end."""


class Stream:
    """Bytes of a file, decompressed where its first bytes say so.

    A zstd file that ends too early is not noticed here: its library tells no difference.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._input = file.read(_INPUT)
        #: "" where the file is not compressed
        self.compression = _compression(self._input)
        self._new = {"gzip": _Gzip, "bzip2": _bzip2, "xz": _xz}.get(self.compression)
        self._decoder = self._new() if self._new else None
        self._read = {"": self._plain, "zstd": self._zstd()}.get(self.compression, self._decompress)

    def piece(self) -> bytes:
        """The next bytes, 256 KiB at most; b"" at the end. Raises ``Damaged`` and ``OSError``."""
        try:
            return self._read()
        except OSError as error:
            if error.errno is not None:
                raise
            raise Damaged(str(error)) from error  # bz2's way to say that the data are invalid
        except MemoryError as error:  # lzma's way to say that more memory is asked for than allowed
            raise Damaged("it asks for too much memory") from error
        except Exception as error:  # zlib.error, lzma.LZMAError, zstandard.ZstdError, EOFError
            raise Damaged(str(error)) from error

    def _plain(self) -> bytes:
        piece, self._input = self._input, b""
        return piece or self._file.read(_OUTPUT)

    def _zstd(self) -> Callable[[], bytes]:
        if self.compression != "zstd":
            return self._plain
        import zstandard

        decoder = zstandard.ZstdDecompressor(max_window_size=_DECODER_MEMORY)
        # The stream reader, as it alone bounds what comes out of one call.
        source: Any = _Source(self._plain)
        reader = decoder.stream_reader(source, read_across_frames=True)
        return lambda: reader.read(_OUTPUT)

    def _decompress(self) -> bytes:
        while True:
            decoder: Any = self._decoder
            if decoder.eof:
                if not self._next_member():
                    return b""
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
        rest = self._decoder.unused_data or self._file.read(_INPUT)  # type: ignore[union-attr]
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


class _Source:
    """A file for zstandard, whose reader takes what a call gives, be it less than it asked for."""

    def __init__(self, piece: Callable[[], bytes]) -> None:
        self._piece = piece
        self._left = b""

    def read(self, size: int) -> bytes:
        data = self._left or self._piece()
        self._left = data[size:]
        return data[:size]


def _bzip2() -> Any:
    import bz2

    return bz2.BZ2Decompressor()


def _xz() -> Any:
    import lzma

    return lzma.LZMADecompressor(lzma.FORMAT_XZ, _DECODER_MEMORY)
