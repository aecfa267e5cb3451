"""compression.type of a topic: recompression of a leader's batches (Kafka: LogValidator).

Kafka's rule: only the codec counts. A batch with the topic's codec stays as it is, whatever its compression level.
Other batches are recompressed, and keep their producer, sequence, offsets and records. Coordinators' batches and
transaction markers are never compressed. The plain bytes pass in pieces while the batch is walked (`validation`), so
only the new contents are held whole, and their size is limited.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from raftlog.base.config.topic import TopicConfig
from raftlog.base.errors import MessageTooLarge
from raftlog.records.compression import CODEC_NAMES, GZIP, LZ4, ZSTD, new_encoder
from raftlog.records.header import HEADER_BYTES, BatchHeader
from raftlog.records.raw_records import with_codec

KEEP_CODEC: Final = -1
"""compression.type=producer: every batch has the codec that its producer chose."""


def codec_of(config: TopicConfig) -> int:
    """Return the number of a topic's codec, or KEEP_CODEC."""
    return CODEC_NAMES.get(config.compression_type, KEEP_CODEC)


def recompression_for(header: BatchHeader, config: TopicConfig) -> Recompression | None:
    """Return the recompression of a produced batch to its topic's codec; None if it has that codec."""
    codec = codec_of(config)
    return None if codec in (KEEP_CODEC, header.codec) else Recompression(codec, config)


class Recompression:
    """The new contents of one batch, built while its plain bytes pass."""

    __slots__ = ("_codec", "_contents", "_encoder", "_max_bytes")

    def __init__(self, codec: int, config: TopicConfig) -> None:
        self._codec = codec
        levels = {
            GZIP: config.compression_gzip_level,
            LZ4: config.compression_lz4_level,
            ZSTD: config.compression_zstd_level,
        }
        self._encoder = new_encoder(codec, levels.get(codec))
        self._max_bytes = config.max_message_bytes
        self._contents = bytearray()

    def taking(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the plain pieces, each after it was compressed. MessageTooLarge beyond max.message.bytes."""
        for piece in pieces:
            self._add(self._encoder.compress(piece))
            yield piece
        self._add(self._encoder.flush())

    def _add(self, compressed: bytes) -> None:
        self._contents += compressed
        if HEADER_BYTES + len(self._contents) > self._max_bytes:
            raise MessageTooLarge(
                f"in the topic's codec the batch exceeds max.message.bytes, which is {self._max_bytes}"
            )

    def finish(self, header: BatchHeader) -> bytes:
        """Return the whole batch, after all pieces. It computes a checksum."""
        return with_codec(header, bytes(self._contents), self._codec)
