"""Admits one process per voter: before a link counts, the other linked voters are asked whether they have another
process.

A copy of a voter beside it could otherwise be linked to one voter while the original is linked to another, and vote
twice. A voter that has another process of that number, linked or asked for, denies the newcomer. If two voters find
that out after they were linked, the process with the higher incarnation loses its link. It is the copy, or the other
process is dead, and a ping will end that link.

An unreachable voter is not waited for. So two voters that do not reach each other can each have a process of the third.
Releases up to 0.3.0 are not asked. This module knows links, not what they carry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from raftlog.quorum.channel import Channel
from raftlog.quorum.messages import LinkAnswer, LinkClaim, Ping, encode_message

CLAIM_SECONDS: Final = 1.0
"""Timeout of an answer: a silent linked voter may be paused."""


class _Pending(NamedTuple):
    channel: Channel
    unheard: set[int]
    """The voters that have not answered."""
    timer: asyncio.TimerHandle | None


class LinkClaims:
    """The links of one voter that are not in use yet. `linked`: the links in use.

    `grant(channel)` takes a link into use; `deny(channel, by)` is called when another voter has denied a link, in use
    or not.
    """

    def __init__(
        self,
        linked: Mapping[int, Channel],
        *,
        grant: Callable[[Channel], None],
        deny: Callable[[Channel, int], None],
    ) -> None:
        self._linked = linked
        self._grant = grant
        self._deny = deny
        self._pending: dict[int, _Pending] = {}

    def ask(self, channel: Channel) -> None:
        """Take a link into use once all linked voters have confirmed that they have no other process of its peer."""
        voter = channel.peer_id
        self.drop(voter)
        asked = {
            each
            for each, link in self._linked.items()
            if each != voter and link.peer.incarnation and channel.peer.incarnation
        }
        if not asked:
            self._grant(channel)
            return
        timer = asyncio.get_running_loop().call_later(
            CLAIM_SECONDS, channel.guarded(self._granted, voter, channel)
        )
        self._pending[voter] = _Pending(channel, asked, timer)
        claim = encode_message(LinkClaim(voter, channel.peer.incarnation))
        for each in asked:
            self._linked[each].send(claim)

    def show_links(self, peer: int) -> None:
        """Have a newly linked voter compare its links with ours."""
        link = self._linked[peer]
        if link.peer.incarnation:
            for voter, other in self._linked.items():
                if voter != peer and other.peer.incarnation:
                    link.send(encode_message(LinkClaim(voter, other.peer.incarnation, in_use=True)))

    def on_claim(self, peer: int, claim: LinkClaim) -> None:
        """Answer a linked voter."""
        link = self._linked[peer]
        pending = self._pending.get(claim.voter)
        ours = self._linked.get(claim.voter) or (pending and pending.channel)
        if not ours or ours.peer.incarnation in (b"", claim.incarnation):
            link.send(encode_message(LinkAnswer(claim.voter, claim.incarnation, denied=False)))
        elif claim.in_use and ours.peer.incarnation > claim.incarnation:
            self._deny(ours, peer)
        else:
            ours.send(encode_message(Ping()))
            link.send(encode_message(LinkAnswer(claim.voter, claim.incarnation, denied=True)))

    def on_answer(self, peer: int, answer: LinkAnswer) -> None:
        """Handle a linked voter's answer."""
        pending = self._pending.get(answer.voter)
        link = pending.channel if pending else self._linked.get(answer.voter)
        if link is None or link.peer.incarnation != answer.incarnation:
            return
        if answer.denied:
            self.drop(answer.voter, close=False)
            self._deny(link, peer)
        elif pending:
            self._heard(answer.voter, peer)

    def on_lost(self, peer: int) -> None:
        """Await no answer of a peer that has lost its link."""
        for voter in tuple(self._pending):
            self._heard(voter, peer)

    def drop(self, voter: int, *, close: bool = True) -> None:
        """Drop a link that is not in use yet."""
        pending = self._pending.pop(voter, None)
        if pending is not None and pending.timer is not None:
            pending.timer.cancel()
        if pending is not None and close:
            pending.channel.close("replaced by a newer link")

    def close(self) -> None:
        """Close all that are not in use."""
        for voter in tuple(self._pending):
            self.drop(voter)

    def _heard(self, voter: int, peer: int) -> None:
        pending = self._pending.get(voter)
        if pending is None:
            return
        pending.unheard.discard(peer)
        if not pending.unheard:
            self._granted(voter, pending.channel)

    def _granted(self, voter: int, channel: Channel) -> None:
        pending = self._pending.get(voter)
        if pending is not None and pending.channel is channel:
            self.drop(voter, close=False)
            self._grant(channel)
