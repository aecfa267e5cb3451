"""The four codecs of record batches. Every decompression has a bound, so that a decompression bomb cannot exhaust
memory.

The libraries are imported on first use: most batches pass through a broker untouched.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, Protocol

from raftlog.base.errors import CorruptMessage, UnsupportedCompressionType

Buffer = bytes | bytearray | memoryview

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

CODEC_NAMES: Final = {
    "none": NONE,
    "uncompressed": NONE,
    "gzip": GZIP,
    "snappy": SNAPPY,
    "lz4": LZ4,
    "zstd": ZSTD,
}
"""Codec numbers by the names that `compression.type` uses."""

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
"""snappy-java's stream: this, two i32 versions, then blocks of i32 length and raw snappy. Others send one raw block."""
XERIAL_HEADER: Final = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
XERIAL_BLOCK_BYTES: Final = 32 * 1024
GZIP_WINDOW: Final = 31
OUTPUT_CHUNK_BYTES: Final = 128 * 1024
"""Plain bytes per piece."""
INPUT_BYTES: Final = 64 * 1024
"""Compressed bytes per input piece: a codec copies what it has not used yet with each piece."""
SNAPPY_EXPANSION: Final = 22
"""A raw block's longest element gives 64 bytes for 3."""
LZ4_DEFAULT_LEVEL: Final = 9
"""Kafka's default level selects its fast compressor, any other level the high compressor (Lz4BlockOutputStream)."""
LZ4_FAST: Final = 0
ZSTD_DEFAULT_LEVEL: Final = 3
ZSTD_WINDOW_BYTES: Final = 1024 * 1024
"""The window of a batch that is compressed piece by piece: the highest levels would take hundreds of MiB without it."""
_I32 = Struct(">i")


class DecompressedTooLarge(CorruptMessage):
    """The plain bytes are more than the caller's limit."""


def decompress(codec: int, compressed: Buffer, *, max_bytes: int) -> bytes:
    """Return the plain bytes. CorruptMessage when they are malformed, DecompressedTooLarge when they are more than
    `max_bytes`.
    """
    if codec == NONE and len(compressed) <= max_bytes:
        return bytes(compressed)
    return b"".join(iter_decompressed(codec, compressed, max_bytes=max_bytes))


def iter_decompressed(codec: int, compressed: Buffer, *, max_bytes: int) -> Iterator[bytes]:
    """Yield the plain bytes in order, in pieces, so that they are never all in memory. Errors as `decompress`.

    A piece has PIECE_BYTES at most; of snappy it is a block, with 22 times its compressed size at most.
    """
    decoder = _DECODERS.get(codec)
    if decoder is None:
        raise UnsupportedCompressionType(f"compression codec {codec} is unknown")
    left = max_bytes
    for piece in decoder(memoryview(compressed), max_bytes):
        left -= len(piece)
        if left < 0:
            raise _too_large(max_bytes)
        yield piece


def compress(codec: int, plain: Buffer) -> bytes:
    """Return `plain` in the framing that Java clients read."""
    if codec == NONE:
        return bytes(plain)
    encoder = _ENCODERS.get(codec)
    if encoder is None:
        raise UnsupportedCompressionType(f"compression codec {codec} is unknown")
    return encoder(bytes(plain))


def _too_large(max_bytes: int) -> DecompressedTooLarge:
    return DecompressedTooLarge(f"the batch decompresses to more than {max_bytes} bytes")


def _slices(compressed: memoryview) -> Iterator[memoryview]:
    return (compressed[start : start + INPUT_BYTES] for start in range(0, len(compressed), INPUT_BYTES))


def _plain(compressed: memoryview, _max_bytes: int) -> Iterator[bytes]:
    return (
        bytes(compressed[start : start + OUTPUT_CHUNK_BYTES])
        for start in range(0, len(compressed), OUTPUT_CHUNK_BYTES)
    )


def _gunzip(compressed: memoryview, _max_bytes: int) -> Iterator[bytes]:
    member = zlib.decompressobj(GZIP_WINDOW)
    begun = False
    try:
        for part in _slices(compressed):
            rest: Buffer = part
            while rest:
                begun = True
                yield member.decompress(rest, OUTPUT_CHUNK_BYTES)
                rest = member.unconsumed_tail
                if member.eof:
                    rest, member, begun = member.unused_data, zlib.decompressobj(GZIP_WINDOW), False
        while begun and not member.eof and (piece := member.decompress(b"", OUTPUT_CHUNK_BYTES)):
            yield piece  # the rest, which did not fit into the last piece
    except zlib.error as error:
        raise CorruptMessage(f"gzip: {error}") from error
    if begun and not member.eof:
        raise CorruptMessage("gzip: the stream is cut off")


def _gzip(plain: bytes) -> bytes:
    member = zlib.compressobj(wbits=GZIP_WINDOW)
    return member.compress(plain) + member.flush()


def _unsnappy(compressed: memoryview, max_bytes: int) -> Iterator[bytes]:
    if bytes(compressed[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        yield _unsnappy_block(compressed, max_bytes)
        return
    position = len(XERIAL_HEADER)
    if len(compressed) < position:
        raise CorruptMessage("snappy: the stream's header is cut off")
    while position < len(compressed):
        if position + 4 > len(compressed):
            raise CorruptMessage("snappy: a block length is cut off")
        (size,) = _I32.unpack_from(compressed, position)
        position += 4
        if not 0 <= size <= len(compressed) - position:
            raise CorruptMessage("snappy: a block is cut off")
        yield _unsnappy_block(compressed[position : position + size], max_bytes)
        position += size


def _unsnappy_block(block: memoryview, max_bytes: int) -> bytes:
    from cramjam import DecompressionError, snappy

    try:
        size = snappy.decompress_raw_len(block)
        if size > max_bytes:
            raise _too_large(max_bytes)
        if size > SNAPPY_EXPANSION * len(block):
            raise CorruptMessage(f"snappy: a block of {len(block)} bytes cannot hold {size}")
        return bytes(snappy.decompress_raw(block))
    except DecompressionError as error:
        raise CorruptMessage(f"snappy: {error}") from error


def _snappy(plain: bytes) -> bytes:
    from cramjam import snappy

    out = bytearray(XERIAL_HEADER)
    for start in range(0, len(plain), XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(plain[start : start + XERIAL_BLOCK_BYTES]))
        out += _I32.pack(len(block)) + block
    return bytes(out)


def _unlz4(compressed: memoryview, _max_bytes: int) -> Iterator[bytes]:
    from lz4.frame import LZ4FrameDecompressor

    frame = LZ4FrameDecompressor()
    try:
        for part in _slices(compressed):
            yield frame.decompress(part, max_length=OUTPUT_CHUNK_BYTES)
            while not (frame.needs_input or frame.eof):
                yield frame.decompress(b"", max_length=OUTPUT_CHUNK_BYTES)
            if frame.eof:
                return
    except RuntimeError as error:
        raise CorruptMessage(f"lz4: {error}") from error
    raise CorruptMessage("lz4: the frame is cut off")


def _lz4(plain: bytes) -> bytes:
    from lz4.frame import compress as compress_frame

    return bytes(compress_frame(plain, block_linked=False, store_size=False))  # as Java clients demand


def _unzstd(compressed: memoryview, _max_bytes: int) -> Iterator[bytes]:
    from zstandard import ZstdDecompressor, ZstdError

    try:
        with ZstdDecompressor().stream_reader(compressed, read_across_frames=True) as reader:
            while piece := reader.read(OUTPUT_CHUNK_BYTES):
                yield piece
    except ZstdError as error:
        raise CorruptMessage(f"zstd: {error}") from error


def _zstd(plain: bytes) -> bytes:
    from zstandard import ZstdCompressor

    return ZstdCompressor().compress(plain)


class Encoder(Protocol):
    """Compresses plain bytes that come piece by piece."""

    def compress(self, plain: bytes, /) -> bytes: ...

    def flush(self) -> bytes: ...


class _Stored:
    """No compression."""

    def compress(self, plain: bytes) -> bytes:
        return plain

    def flush(self) -> bytes:
        return b""


class _SnappyEncoder:
    """The blocks of `_snappy`."""

    def __init__(self) -> None:
        self._begun = False
        self._rest = b""

    def compress(self, plain: bytes) -> bytes:
        whole = self._rest + plain
        end = len(whole) - len(whole) % XERIAL_BLOCK_BYTES
        self._rest = whole[end:]
        return self._blocks(whole[:end])

    def flush(self) -> bytes:
        return self._blocks(self._rest)

    def _blocks(self, plain: bytes) -> bytes:
        framed = _snappy(plain)
        begun, self._begun = self._begun, True
        return framed[len(XERIAL_HEADER) :] if begun else framed


class _Lz4Encoder:
    """The frame of `_lz4`."""

    def __init__(self, level: int) -> None:
        from lz4.frame import LZ4FrameCompressor

        self._frame = LZ4FrameCompressor(compression_level=level, block_linked=False)
        self._begun = False

    def compress(self, plain: bytes) -> bytes:
        head = b"" if self._begun else bytes(self._frame.begin())
        self._begun = True
        return head + bytes(self._frame.compress(plain))

    def flush(self) -> bytes:
        return self.compress(b"") + bytes(self._frame.flush())


def new_encoder(codec: int, level: int | None = None) -> Encoder:
    """Return an encoder for one batch in the framing that Java clients read; `level` None is Kafka's default."""
    if codec == NONE:
        return _Stored()
    if codec == GZIP:
        return zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, wbits=GZIP_WINDOW)
    if codec == SNAPPY:
        return _SnappyEncoder()
    if codec == LZ4:
        return _Lz4Encoder(LZ4_FAST if level in (None, LZ4_DEFAULT_LEVEL) else level)
    if codec == ZSTD:
        return _zstd_encoder(ZSTD_DEFAULT_LEVEL if level is None else level)
    raise UnsupportedCompressionType(f"compression codec {codec} is unknown")


def _zstd_encoder(level: int) -> Encoder:
    from zstandard import ZstdCompressionParameters, ZstdCompressor

    parameters = ZstdCompressionParameters.from_level(level, source_size=ZSTD_WINDOW_BYTES)
    return ZstdCompressor(compression_params=parameters).compressobj()


_DECODERS: Final[dict[int, Callable[[memoryview, int], Iterator[bytes]]]] = {
    NONE: _plain,
    GZIP: _gunzip,
    SNAPPY: _unsnappy,
    LZ4: _unlz4,
    ZSTD: _unzstd,
}
_ENCODERS: Final[dict[int, Callable[[bytes], bytes]]] = {GZIP: _gzip, SNAPPY: _snappy, LZ4: _lz4, ZSTD: _zstd}
