"""Claims about the messages of the handshake between nodes: older releases, bounds, and what a voter says of itself."""

from __future__ import annotations

from uuid import UUID

import msgspec
import pytest

from raftlog.base.types import NO_DIRECTORY
from raftlog.quorum.handshake_messages import (
    Challenge,
    Hello,
    Introduced,
    Levels,
    decode_handshake,
    directory_fields,
    encode_handshake,
    introduced,
    why_too_old,
)
from raftlog.quorum.incarnations import MAX_DIRECTORIES, Heard

DIRECTORY = UUID(int=7)
HEARD = Heard(DIRECTORY.bytes, b"i" * 16, 3, 9, 2)
HELLO = Hello(2, "raft", 3, "a cluster", b"n" * 32, 0, 2, DIRECTORY.bytes, b"j" * 16, True, [HEARD], True)
CHALLENGE = Challenge(3, "a cluster", b"n" * 32, 0, 2, DIRECTORY.bytes, b"j" * 16, True, [HEARD], True)


@pytest.mark.parametrize("message", [HELLO, CHALLENGE])
def test_a_message_is_read_as_it_was_written(message: Hello | Challenge) -> None:
    """With all that it says of its sender."""
    read = decode_handshake(encode_handshake(message))
    assert read == message
    assert introduced(message) == Introduced(3, DIRECTORY, b"j" * 16, True, (HEARD,), True)


@pytest.mark.parametrize(("message", "fields"), [(HELLO, 6), (CHALLENGE, 4)])
def test_an_older_release_says_less(message: Hello | Challenge, fields: int) -> None:
    """Up to 0.3.0 not its directory; up to 0.2.0 no levels either."""
    written = msgspec.msgpack.decode(encode_handshake(message))
    read = decode_handshake(msgspec.msgpack.encode(written[:fields]))
    assert isinstance(read, Hello | Challenge)
    assert introduced(read) == Introduced(3)
    assert (read.lowest_level, read.highest_level) == (0, 0)


@pytest.mark.parametrize("message", [HELLO, CHALLENGE])
def test_a_newer_release_may_say_more(message: Hello | Challenge) -> None:
    """Fields that a release adds are at the end, and older releases skip them."""
    written = [*msgspec.msgpack.decode(encode_handshake(message)), "more"]
    assert decode_handshake(msgspec.msgpack.encode(written)) == message


@pytest.mark.parametrize(
    "changed",
    [
        {"node_id": -1},
        {"node_id": 1 << 31},
        {"directory_id": b"d" * 17},
        {"incarnation": b"i" * 17},
        {"heard": [HEARD] * (MAX_DIRECTORIES + 1)},
        {"heard": [Heard(b"d" * 17, b"")]},
        {"heard": [Heard(b"", b"", -1)]},
        {"heard": [Heard(b"", b"", 0, 1 << 62)]},
    ],
)
def test_what_is_out_of_bounds_is_no_message(changed: dict[str, object]) -> None:
    """It comes from strangers, so no field of it is large."""
    for message in (HELLO, CHALLENGE):
        with pytest.raises(msgspec.ValidationError):
            decode_handshake(encode_handshake(msgspec.structs.replace(message, **changed)))


def test_a_directory_id_of_another_length_is_none() -> None:
    """It is sixteen bytes or missing."""
    short = msgspec.structs.replace(HELLO, directory_id=b"short")
    assert introduced(short).directory_id == NO_DIRECTORY


class Voter:
    """A voter's answers; it heard of voter 3 only."""

    directory_id = DIRECTORY
    incarnation = b"j" * 16
    new_journal = True
    observes = True

    def incarnations_of(self, voter: int) -> list[Heard]:
        return [HEARD] if voter == 3 else []


def test_a_voter_says_to_each_peer_what_it_heard_of_that_one() -> None:
    """A peer with an unknown number gets no such statement."""
    assert directory_fields(Voter(), 3, NO_DIRECTORY) == (DIRECTORY.bytes, b"j" * 16, True, [HEARD], True)
    assert directory_fields(Voter(), 2, NO_DIRECTORY)[3] == []
    assert directory_fields(Voter(), None, NO_DIRECTORY)[3] == []


def test_a_node_that_does_not_vote_says_its_directory_only() -> None:
    """It has no history among the voters."""
    assert directory_fields(None, 3, DIRECTORY) == (DIRECTORY.bytes, b"", False, [], False)


def test_a_peer_that_lacks_the_clusters_level_is_refused() -> None:
    """It could not read the metadata. Before the level is known no voter is refused."""
    ours = Levels(0, 2, lambda: 2)
    assert why_too_old(ours, 3, (0, 2)) is None
    assert "node 3 supports levels 0 to 1" in str(why_too_old(ours, 3, (0, 1)))
    assert "the cluster's is 2" in str(why_too_old(ours, 3, (3, 4)))
    assert why_too_old(Levels(0, 2, lambda: None), 3, (0, 1)) is None
