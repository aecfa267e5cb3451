"""Claims about links to one process of each voter: the other voters are asked before a new link counts."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from raftlog.quorum import link_claims
from raftlog.quorum.channel import Channel
from raftlog.quorum.handshake_messages import Introduced
from raftlog.quorum.link_claims import LinkClaims
from raftlog.quorum.messages import LinkAnswer, LinkClaim, Message, Ping, decode_message

FIRST, SECOND = b"\0" * 7 + b"\x01" + b"a" * 8, b"\0" * 7 + b"\x02" + b"b" * 8


class FakeChannel:
    """A channel that remembers what was sent."""

    def __init__(self, peer_id: int, incarnation: bytes = FIRST) -> None:
        self.peer_id = peer_id
        self.peer = Introduced(peer_id, incarnation=incarnation)
        self.sent: list[Message] = []
        self.close_reason: str | None = None
        self.guarded = Channel.guarded.__get__(self)
        self.run_guarded = Channel.run_guarded.__get__(self)

    def send(self, payload: bytes) -> None:
        self.sent.append(decode_message(payload))

    def close(self, reason: str) -> None:
        self.close_reason = reason

    def crash(self, what: str) -> None:
        raise AssertionError(what)


class Links:
    """The links of a voter, in use and denied."""

    def __init__(self, *channels: FakeChannel) -> None:
        self.linked = {each.peer_id: each for each in channels}
        self.denied: list[FakeChannel] = []
        self.claims = LinkClaims(cast("dict[int, Channel]", self.linked), grant=self._grant, deny=self._deny)

    def _grant(self, channel: Channel) -> None:
        self.linked[channel.peer_id] = cast("FakeChannel", channel)

    def _deny(self, channel: Channel, by: int) -> None:
        self.denied.append(cast("FakeChannel", channel))

    def ask(self, channel: FakeChannel) -> None:
        self.claims.ask(cast("Channel", channel))


def claim(incarnation: bytes = FIRST, *, in_use: bool = False) -> LinkClaim:
    return LinkClaim(3, incarnation, in_use)


def answer(incarnation: bytes = FIRST, *, denied: bool = False) -> LinkAnswer:
    return LinkAnswer(3, incarnation, denied)


async def test_the_first_link_does_not_wait() -> None:
    """No other voter is there to ask; so two of three voters elect while the third is down."""
    links, new = Links(), FakeChannel(3)
    links.ask(new)
    assert links.linked[3] is new


async def test_a_link_counts_once_all_linked_voters_have_answered() -> None:
    """Each could have another process of that voter."""
    second, fourth, new = FakeChannel(2), FakeChannel(4), FakeChannel(3)
    links = Links(second, fourth)
    links.ask(new)
    assert second.sent == fourth.sent == [claim()]
    links.claims.on_answer(2, answer())
    assert 3 not in links.linked
    links.claims.on_answer(4, answer())
    assert links.linked[3] is new


async def test_voters_of_older_releases_are_neither_asked_nor_asked_about() -> None:
    """Up to 0.3.0 they would close the link at a message that they do not know."""
    old, new = FakeChannel(2, b""), FakeChannel(3)
    links = Links(old)
    links.ask(new)
    links.claims.show_links(2)
    assert links.linked[3] is new and not old.sent
    links, old, second = Links(FakeChannel(2)), FakeChannel(3, b""), FakeChannel(2)
    links.ask(old)
    assert links.linked[3] is old and not second.sent


async def test_a_denied_link_never_counts() -> None:
    """Not even once the others have answered."""
    links, new = Links(FakeChannel(2), FakeChannel(4)), FakeChannel(3)
    links.ask(new)
    links.claims.on_answer(2, answer(denied=True))
    links.claims.on_answer(4, answer())
    links.claims.on_lost(2)
    assert links.denied == [new] and 3 not in links.linked


async def test_an_answer_about_another_process_is_none() -> None:
    """It was for the previous link."""
    links, new = Links(FakeChannel(2)), FakeChannel(3, SECOND)
    links.ask(new)
    links.claims.on_answer(2, answer(FIRST))
    links.claims.on_answer(2, answer(FIRST, denied=True))
    assert 3 not in links.linked and not links.denied


async def test_a_voter_that_is_lost_is_not_waited_for() -> None:
    """A majority goes on without it."""
    links, new = Links(FakeChannel(2)), FakeChannel(3)
    links.ask(new)
    links.claims.on_lost(4)
    assert 3 not in links.linked
    links.claims.on_lost(2)
    assert links.linked[3] is new


async def test_a_voter_that_says_nothing_is_waited_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be paused, with its link open."""
    monkeypatch.setattr(link_claims, "CLAIM_SECONDS", 0.0)
    links, new = Links(FakeChannel(2)), FakeChannel(3)
    links.ask(new)
    assert 3 not in links.linked
    while 3 not in links.linked:
        await asyncio.sleep(0)


async def test_a_newer_link_takes_the_place_of_one_that_waits() -> None:
    """As it does once both are in use."""
    links, old, new = Links(FakeChannel(2)), FakeChannel(3), FakeChannel(3, SECOND)
    links.ask(old)
    links.ask(new)
    assert old.close_reason is not None
    links.claims.on_answer(2, answer(SECOND))
    assert links.linked[3] is new


async def test_the_process_that_is_linked_already_stays() -> None:
    """Its number does not matter; a ping finds out whether it is dead."""
    second, ours = FakeChannel(2), FakeChannel(3)
    links = Links(second, ours)
    for asked in (claim(FIRST), claim(SECOND)):
        links.claims.on_claim(2, asked)
    assert second.sent == [answer(FIRST), answer(SECOND, denied=True)]
    assert ours.sent == [Ping()]


async def test_of_two_that_wait_at_two_voters_none_counts() -> None:
    """Both try again, after pauses of different lengths."""
    second, ours = FakeChannel(2), FakeChannel(3)
    links = Links(second)
    links.ask(ours)
    links.claims.on_claim(2, claim(SECOND))
    assert second.sent == [claim(FIRST), answer(SECOND, denied=True)]


async def test_voters_that_are_linked_again_compare_their_links() -> None:
    """Of two processes in use, the process with the lower incarnation stays: a later copy has a higher incarnation."""
    second, ours = FakeChannel(2), FakeChannel(3, SECOND)
    links = Links(second, ours)
    links.claims.show_links(2)
    assert second.sent == [claim(SECOND, in_use=True)]
    links.claims.on_answer(2, answer(SECOND, denied=True))
    assert links.denied == [ours]
    links = Links(second, ours)
    links.claims.on_claim(2, claim(FIRST, in_use=True))
    assert links.denied == [ours]
    links = Links(second, FakeChannel(3, FIRST))
    links.claims.on_claim(2, claim(SECOND, in_use=True))
    assert not links.denied and second.sent[-1] == answer(SECOND, denied=True)


async def test_a_voter_that_stops_closes_links_that_wait() -> None:
    """No claim is left behind."""
    links, new = Links(FakeChannel(2)), FakeChannel(3)
    links.ask(new)
    links.claims.close()
    assert new.close_reason is not None
    links.claims.on_lost(2)
    assert 3 not in links.linked
