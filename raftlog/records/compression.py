"""The four codecs of record batches. Every decompression has a bound, so that a small bomb cannot eat the memory.

The libraries are imported on first use: most batches pass through a broker untouched.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from struct import Struct
from typing import Final

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
_I32 = Struct(">i")


def decompress(codec: int, compressed: Buffer, *, max_bytes: int) -> bytes:
    """Return the plain bytes. CorruptMessage when they are malformed or more than `max_bytes`."""
    if codec == NONE:
        if len(compressed) > max_bytes:
            raise _bomb(max_bytes)
        return bytes(compressed)
    decoder = _DECODERS.get(codec)
    if decoder is None:
        raise UnsupportedCompressionType(f"compression codec {codec} is unknown")
    return decoder(bytes(compressed), max_bytes)


def compress(codec: int, plain: Buffer) -> bytes:
    """Return `plain` in the framing that Java clients read."""
    if codec == NONE:
        return bytes(plain)
    encoder = _ENCODERS.get(codec)
    if encoder is None:
        raise UnsupportedCompressionType(f"compression codec {codec} is unknown")
    return encoder(bytes(plain))


def _bomb(max_bytes: int) -> CorruptMessage:
    return CorruptMessage(f"the batch decompresses to more than {max_bytes} bytes")


def _gunzip(compressed: bytes, max_bytes: int) -> bytes:
    plain = b""
    while compressed:
        member = zlib.decompressobj(GZIP_WINDOW)
        try:
            plain += member.decompress(compressed, max_bytes + 1 - len(plain))
        except zlib.error as error:
            raise CorruptMessage(f"gzip: {error}") from error
        if len(plain) > max_bytes:
            raise _bomb(max_bytes)
        if not member.eof:
            raise CorruptMessage("gzip: the stream is cut off")
        compressed = member.unused_data
    return plain


def _gzip(plain: bytes) -> bytes:
    member = zlib.compressobj(wbits=GZIP_WINDOW)
    return member.compress(plain) + member.flush()


def _unsnappy(compressed: bytes, max_bytes: int) -> bytes:
    if not compressed.startswith(XERIAL_MAGIC):
        return _unsnappy_block(compressed, max_bytes)
    plain = bytearray()
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
        plain += _unsnappy_block(compressed[position : position + size], max_bytes - len(plain))
        position += size
    return bytes(plain)


def _unsnappy_block(block: bytes, max_bytes: int) -> bytes:
    from cramjam import DecompressionError, snappy

    try:
        if snappy.decompress_raw_len(block) > max_bytes:
            raise _bomb(max_bytes)
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


def _unlz4(compressed: bytes, max_bytes: int) -> bytes:
    from lz4.frame import LZ4FrameDecompressor

    frame = LZ4FrameDecompressor()
    try:
        plain = bytes(frame.decompress(compressed, max_length=max_bytes + 1))
    except RuntimeError as error:
        raise CorruptMessage(f"lz4: {error}") from error
    if len(plain) > max_bytes:
        raise _bomb(max_bytes)
    if not frame.eof:
        raise CorruptMessage("lz4: the frame is cut off")
    return plain


def _lz4(plain: bytes) -> bytes:
    from lz4.frame import compress as compress_frame

    return bytes(compress_frame(plain, block_linked=False, store_size=False))  # as Java clients demand


def _unzstd(compressed: bytes, max_bytes: int) -> bytes:
    from zstandard import ZstdDecompressor, ZstdError

    plain = bytearray()
    try:
        with ZstdDecompressor().stream_reader(compressed, read_across_frames=True) as reader:
            while chunk := reader.read(min(1 << 20, max_bytes + 1 - len(plain))):
                plain += chunk
                if len(plain) > max_bytes:
                    raise _bomb(max_bytes)
    except ZstdError as error:
        raise CorruptMessage(f"zstd: {error}") from error
    return bytes(plain)


def _zstd(plain: bytes) -> bytes:
    from zstandard import ZstdCompressor

    return ZstdCompressor().compress(plain)


_DECODERS: Final[dict[int, Callable[[bytes, int], bytes]]] = {
    GZIP: _gunzip,
    SNAPPY: _unsnappy,
    LZ4: _unlz4,
    ZSTD: _unzstd,
}
_ENCODERS: Final[dict[int, Callable[[bytes], bytes]]] = {GZIP: _gzip, SNAPPY: _snappy, LZ4: _lz4, ZSTD: _zstd}
