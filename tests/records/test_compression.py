"""The codecs of record batches, and the bound on what they may unpack to."""

from __future__ import annotations

import cramjam
import pytest
from aiokafka.codec import lz4_decode, snappy_decode
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.base.errors import CorruptMessage, UnsupportedCompressionType
from raftlog.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress, decompress
from tests.kit.examples import examples

CODECS = [NONE, GZIP, SNAPPY, LZ4, ZSTD]


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=30)
@given(plain=st.binary(max_size=3000).map(lambda part: part * 30))
def test_what_was_compressed_comes_back(codec: int, plain: bytes) -> None:
    """decompress(compress(x)) = x for every codec, also beyond one snappy block of 32 KiB."""
    assert decompress(codec, compress(codec, plain), max_bytes=len(plain)) == plain


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_cut_off(codec: int) -> None:
    """More plain bytes than `max_bytes` are CorruptMessage, for every codec."""
    packed = compress(codec, bytes(1 << 20))
    with pytest.raises(CorruptMessage):
        decompress(codec, packed, max_bytes=(1 << 20) - 1)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_a_stream_cut_at_any_byte_is_corrupt(codec: int) -> None:
    """Every proper prefix of a compressed stream is refused as CorruptMessage."""
    packed = compress(codec, b"a line of text, a line of text\n" * 3)
    for length in range(1, len(packed)):
        if codec == SNAPPY and length == 16:
            continue  # a xerial header without blocks is an empty stream
        with pytest.raises(CorruptMessage):
            decompress(codec, packed[:length], max_bytes=1 << 20)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
@settings(max_examples=examples(50))
@given(garbage=st.binary(min_size=1, max_size=200))
def test_garbage_raises_nothing_but_corrupt(codec: int, garbage: bytes) -> None:
    """Bytes from nowhere either unpack or raise CorruptMessage."""
    try:
        decompress(codec, garbage, max_bytes=1 << 16)
    except CorruptMessage:
        pass


def test_raw_snappy_blocks_are_read() -> None:
    """librdkafka and Go clients send one raw snappy block without snappy-java's framing."""
    raw = bytes(cramjam.snappy.compress_raw(b"hello" * 100))
    assert decompress(SNAPPY, raw, max_bytes=1000) == b"hello" * 100


def test_other_clients_read_our_framing() -> None:
    """aiokafka's decoders read what `compress` writes; LZ4 blocks are independent, as the Java client demands."""
    plain = b"0123456789" * 20_000
    assert snappy_decode(compress(SNAPPY, plain)) == plain
    packed = compress(LZ4, plain)
    assert lz4_decode(packed) == plain
    assert packed[4] & 0x20, "block independence flag of the frame descriptor"


def test_an_unknown_codec_is_unsupported() -> None:
    """Codecs 5 to 7 do not exist (UNSUPPORTED_COMPRESSION_TYPE)."""
    with pytest.raises(UnsupportedCompressionType):
        decompress(5, b"x", max_bytes=10)
    with pytest.raises(UnsupportedCompressionType):
        compress(7, b"x")
