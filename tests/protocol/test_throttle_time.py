"""raftlog.protocol.throttle_time: the throttle time of encoded responses, of every API and version that has it."""

from __future__ import annotations

import dataclasses

import pytest

from raftlog.broker.handlers import served
from raftlog.protocol.apis import APIS
from raftlog.protocol.codec import decode_response, encode_response
from raftlog.protocol.message_builders import build_response
from raftlog.protocol.schema import message_type, schema_of
from raftlog.protocol.throttle_time import with_throttle_time

PRODUCE, FETCH, API_VERSIONS = 0, 1, 18
VERSIONS = [
    (key, version)
    for key in sorted(served())
    for version in range(APIS[key].min_version, APIS[key].max_version + 1)
    if key not in (PRODUCE, FETCH)
]


def fields_of(key: int, version: int) -> list[str]:
    return [each.name for each in schema_of(message_type(key, version, "response")).fields]


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_a_response_has_the_throttle_time(key: int, version: int) -> None:
    """All other fields stay as they were; a longer wait that it contains already too."""
    frame = encode_response(key, version, 7, build_response(key, version))
    changed = with_throttle_time(frame, key, version, 1_234)
    if "throttle_time" not in fields_of(key, version) or (key == API_VERSIONS and version >= 3):
        assert changed is frame
        return
    header, before = decode_response(key, version, memoryview(frame)[4:])
    assert before.throttle_time == 0
    assert decode_response(key, version, memoryview(bytes(changed))[4:]) == (
        header,
        dataclasses.replace(before, throttle_time=1_234),
    )
    assert with_throttle_time(changed, key, version, 1_000) is changed
