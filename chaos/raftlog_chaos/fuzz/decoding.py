"""Frames through the decoders alone, as a broker decodes them before any handler sees them.

Law: bytes are either understood or refused by an error of the protocol. Anything else that is raised is a finding.
"""

from __future__ import annotations

import time
from itertools import islice
from typing import Final, Literal

from raftlog.base.errors import InvalidRequest, KafkaError, UnsupportedVersion
from raftlog.protocol.apis import APIS, PRODUCE_ADVERTISED_FROM
from raftlog.protocol.codec import decode_header, decode_request
from raftlog.protocol.fetch import decode_fetch
from raftlog.protocol.frames import PREFIX_BYTES, FramingLost, frame_length
from raftlog.protocol.produce import ProduceRequest, decode_produce
from raftlog.records.batch import iter_records
from raftlog.records.header import BatchHeader, Buffer, validate_produced
from raftlog.records.validation import RecordRules, validate_records
from raftlog_chaos.fuzz.findings import Finding, Slowest
from raftlog_chaos.fuzz.stuck import bounded

PRODUCE, FETCH = 0, 1
LARGEST_FRAME: Final = 100 << 20
MAX_MESSAGE_BYTES: Final = 1 << 20
MAX_PLAIN_BYTES: Final = 8 << 20
MAX_RECORDS: Final = 1_000
"""Read from one batch."""
MAX_STEPS: Final = 100
"""The maximum number of steps of the walk through one batch."""
LAWS: Final = RecordRules(
    needs_keys=True, earliest_ms=0, latest_ms=2_000_000_000_000, max_decompressed_bytes=MAX_PLAIN_BYTES
)

STUCK_S: Final = 10.0
"""Processor time of one frame. The bombs in Produce take a tenth of a second."""

Outcome = Literal["understood", "refused", "no schema", "no frame"]


def decode(data: bytes) -> Outcome:
    """Decode a frame, its length in front, as far as the decoders go. Any exception is a finding."""
    if len(data) < PREFIX_BYTES:
        return "no frame"
    try:
        size = frame_length(data, 0, LARGEST_FRAME)
    except FramingLost:
        return "no frame"
    frame = memoryview(data)[PREFIX_BYTES : PREFIX_BYTES + size]
    if len(frame) < size:
        return "no frame"  # the rest is still to come
    try:
        header, position = decode_header(frame)
        api = APIS.get(header.api_key)
        if (
            header.api_key == PRODUCE
            and PRODUCE_ADVERTISED_FROM <= header.api_version <= APIS[PRODUCE].max_version
        ):
            _look_at_records(decode_produce(frame, position, header.api_version))
        elif header.api_key == FETCH and api is not None and api.handles(header.api_version):
            decode_fetch(frame, position, header.api_version)
        elif api is None or not api.handles(header.api_version):
            return "no schema"
        else:
            decode_request(header.api_key, header.api_version, frame, position)
    except (InvalidRequest, UnsupportedVersion):
        return "refused"
    return "understood"


def _look_at_records(request: ProduceRequest) -> None:
    """Hold batches to the laws of a produced batch, and read the records as a compacted topic and a reader do."""
    for _, batches in request.topics:
        for _, records in batches:
            if records is None:
                continue
            try:
                _walk(validate_produced(records, MAX_MESSAGE_BYTES), records)
            except KafkaError:
                pass
            try:
                for _ in islice(iter_records(records, max_bytes=MAX_PLAIN_BYTES), MAX_RECORDS):
                    pass
            except KafkaError:
                pass


def _walk(header: BatchHeader, records: Buffer) -> None:
    """Judge the records of a batch, as for a topic that needs keys, in at most MAX_STEPS steps."""
    steps, result = validate_records(header, records, LAWS), None
    for _ in range(MAX_STEPS):
        try:
            step = steps.send(result)
        except StopIteration:
            return
        result = None if step is None else step()


def try_decoding(data: bytes, kind: str, slowest: Slowest) -> Outcome | Finding:
    """Decode a frame; return an exception that should not be raised as a finding, as is a frame that never ends."""
    began = time.thread_time()
    try:
        with bounded(STUCK_S):
            outcome = decode(data)
    except Exception as error:
        return Finding.of(error, "decoding", kind, (data,))
    slowest.note(time.thread_time() - began, kind, data)
    return outcome
