"""A member of a share group that behaves badly (KIP-932).

It accepts, releases, rejects and renews, in ShareFetch or in ShareAcknowledge. It sleeps through its locks and
acknowledges late, and names records of others. It ends its session, drops its connection, or vanishes with its records
and comes back as another member. Once it is calm it accepts everything.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from raftlog.records.batch import iter_headers, iter_records
from raftlog_chaos.workloads.raw_client import AWAY, Client
from raftlog_chaos.workloads.share_group_model import Hold, Reign, ShareGroupModel, give_up
from raftlog_chaos.workloads.share_member import (
    ACCEPT,
    FINAL_EPOCH,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    RENEWS,
    Ack,
    ShareMember,
)

BACKOFF_S: Final = 0.05
PAUSE_S: Final = 0.03
MOST: Final = (1, 3, 10, 40)
"""The records of a fetch, at most."""


class ShareWorker:
    """Acts until `stopping`. `reign(host)` returns the object of that host's leader; None if it does not lead."""

    def __init__(
        self,
        name: str,
        bootstrap: Any,
        *,
        book: ShareGroupModel,
        reign: Callable[[str], Reign],
        chance: random.Random,
    ) -> None:
        self.name = name
        self.book = book
        self.stopping = self.calm = False
        self._bootstrap = bootstrap
        self._reign = reign
        self._chance = chance
        self._lives = 0
        self._holds: dict[int, Hold] = {}
        self._gaps: set[int] = set()
        """The offsets of markers and removed records: consumers skip them, and say that there is no record."""
        self._member = self._new_member()
        self._has_joined = False
        self._has_leader = False

    def _new_member(self) -> ShareMember:
        self._lives += 1
        name = f"{self.name}-{self._lives}"
        client = Client(name, self._bootstrap, timeout_s=self._chance.choice((1.5, 8.0)))
        return ShareMember(client, name, self.book.where, group=self.book.group)

    async def run(self) -> None:
        """Act again and again."""
        while not self.stopping:
            await asyncio.sleep(self._chance.expovariate(1 / PAUSE_S))
            try:
                if self._has_leader:
                    await self._act()
                else:
                    await self._begin()
            except AWAY:
                self._lose_session()
                await asyncio.sleep(BACKOFF_S)

    async def _begin(self) -> None:
        """Join the group once, and look for the leader."""
        await self._member.client.refresh(self.book.where[0])
        if not self._has_joined:
            await self._member.join()
            # Leaders do not ask for members, and offsets are set only for groups without members.
            await self._member.leave()
            self._has_joined = True
        self._member.epoch = 0
        self._has_leader = self._member.address is not None

    def _lose_session(self) -> None:
        """Drop the connections, so that all its sessions end."""
        self._has_leader = False
        self._give_up()
        self._member.client.close()

    def _give_up(self) -> None:
        for each in self._holds.values():
            give_up(each, self._now())
        self._holds = {}

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # -- a turn --------------------------------------------------------------------------------------------

    async def _act(self) -> None:
        luck = 1.0 if self.calm else self._chance.random()
        if luck < 0.02:
            self._vanish()
        elif luck < 0.04:
            self._lose_session()
        elif luck < 0.06:
            await self._end_session()
        elif luck < 0.1:
            await asyncio.sleep(self.book.lock_s * self._chance.choice((0.5, 0.9, 1.2, 2.0)))
        elif luck < 0.12:
            await self._meddle()
        elif luck < 0.2 and self._holds:
            await self._renew()
        elif luck < 0.5 and self._holds and self._member.epoch > 0:
            await self._acknowledge(self._kinds())
        elif len(self._holds) < 100:
            await self._fetch(self._kinds() if self._member.epoch > 0 else {})
        else:
            await self._acknowledge(self._kinds())

    def _vanish(self) -> None:
        """Leave the session and its connection as they are, and come back as another member."""
        self._holds = {}
        self._member = self._new_member()
        self._has_leader = False

    def _kinds(self) -> dict[int, int]:
        """Choose what to say about some of the records."""
        share = 1.0 if self.calm else self._chance.choice((0.0, 0.5, 1.0))
        held = [each for each in sorted(self._holds) if self._chance.random() < share]
        kinds = (ACCEPT,) if self.calm else (ACCEPT,) * 6 + (RELEASE,) * 3 + (REJECT,)
        return {each: GAP if each in self._gaps else self._chance.choice(kinds) for each in held}

    async def _meddle(self) -> None:
        """Acknowledge a record as a member that never had one."""
        if not self.book.counted:
            return
        self._vanish()
        await self._begin()
        await self._fetch({}, max_records=0)
        kind = self._chance.choice((ACCEPT, RELEASE, REJECT, RENEW))
        fields = {"is_renew_ack": True} if kind == RENEW else {}
        await self._acknowledge({self._chance.choice(sorted(self.book.counted)): kind}, **fields)

    async def _renew(self) -> None:
        held = [each for each in sorted(self._holds) if self._chance.random() < 0.7]
        kinds = dict.fromkeys(held, RENEW)
        if self._chance.random() < 0.5 or self._member.epoch == 0:
            await self._acknowledge(kinds, is_renew_ack=True)
        else:
            await self._fetch(kinds, **RENEWS)

    async def _end_session(self) -> None:
        """End the session, perhaps with some last words; the leader gives up the rest."""
        if self._member.epoch == 0:
            return
        kinds = self._kinds()
        before = self._reign(self._member.address[0])
        await (self._fetch if self._chance.random() < 0.5 else self._acknowledge)(kinds, epoch=FINAL_EPOCH)
        self.book.session_ended(self._member.name, self._after(before))
        self._give_up()
        self._member.epoch = 0

    # -- requests ------------------------------------------------------------------------------------------

    async def _acknowledge(self, kinds: Mapping[int, int], **fields: Any) -> None:
        if self._member.epoch == 0:
            return
        before, sent_at, holds = self._before(kinds, fields)
        answer = await self._member.acknowledge(*acks_of(kinds), **fields)
        reign = self._after(before)
        if self._is_over(answer.error_code):
            self.book.not_heard(kinds)
            return
        for topic in answer.responses:
            for each in topic.partitions:
                self._note_outcome(holds, kinds, int(each.error_code), reign=reign, sent_at=sent_at)

    async def _fetch(self, kinds: Mapping[int, int], **fields: Any) -> None:
        before, sent_at, holds = self._before(kinds, fields)
        usual = {
            "max_records": self._chance.choice(MOST),
            "max_wait": self._chance.choice((0, 100, 500)),
            "share_acquire_mode": self._chance.randrange(2),
            "batch_size": self._chance.choice((1, 5, 100)),
        }
        answer = await self._member.fetch(*acks_of(kinds), **{**usual, **fields})
        reign = self._after(before)
        if self._is_over(answer.error_code):
            self.book.not_heard(kinds)
            return
        for topic in answer.responses:
            for each in topic.partitions:
                if kinds:
                    self._note_outcome(
                        holds, kinds, int(each.acknowledge_error_code), reign=reign, sent_at=sent_at
                    )
                if each.error_code:
                    self._lose_session()
                else:
                    self._note_records(each, reign=reign, sent_at=sent_at)

    def _before(
        self, kinds: Mapping[int, int], fields: Mapping[str, Any]
    ) -> tuple[Reign, float, dict[int, Hold]]:
        """Note what is about to be sent; return the leader, the time, and what this member has of it."""
        holds = {each: self._holds[each] for each in kinds if each in self._holds}
        sent_at = self._now()
        if fields.get("epoch") == FINAL_EPOCH:
            for each in self._holds.values():
                give_up(each, sent_at)
        self.book.sent(holds, kinds)
        return self._reign(self._member.address[0]), sent_at, holds

    def _after(self, before: Reign) -> Reign:
        """Return the leader that has answered, if it is the same as before the request."""
        reign = self._reign(self._member.address[0])
        return reign if reign is before else None

    def _is_over(self, code: int) -> bool:
        if code:
            self._lose_session()
        return bool(code)

    def _note_outcome(
        self, holds: dict[int, Hold], kinds: Mapping[int, int], code: int, *, reign: Reign, sent_at: float
    ) -> None:
        self.book.told(holds, kinds, code, reign=reign, sent_at=sent_at)
        for offset, kind in kinds.items():
            if (kind != RENEW or code) and offset in self._holds:
                give_up(self._holds.pop(offset), self._now())

    def _note_records(self, part: Any, *, reign: Reign, sent_at: float) -> None:
        """Note the records of a response, and that each acquired offset has one unless the topic is compacted."""
        acquired = [
            (each.first_offset, each.last_offset, each.delivery_count) for each in part.acquired_records
        ]
        view = memoryview(part.records or b"")
        values: dict[int, bytes | None] = {}
        for position, header in iter_headers(view):
            for record in iter_records(view[position : position + header.length]):
                values[record.offset] = None if header.is_control else record.value or b""
        found = self.book.delivered(self._member.name, acquired, reign=reign, sent_at=sent_at)
        for offset in found:
            if offset not in values and self.book.compacted:
                values[offset] = None
                self.book.removed += 1
            elif offset not in values:
                self.book.blame(f"{offset} was delivered without its record")
            elif (value := values[offset]) is not None:
                self.book.history.consume(self.book.where, offset, value)
        self._gaps = {each for each in found if values.get(each, b"") is None} | self._gaps
        self._holds |= found


def acks_of(kinds: Mapping[int, int]) -> Iterable[Ack]:
    """Return acknowledgement batches, of adjacent offsets each."""
    batches: list[Ack] = []
    for offset, kind in sorted(kinds.items()):
        if batches and batches[-1][1] == offset - 1:
            first, _, types = batches.pop()
            batches.append((first, offset, [*types, kind]))
        else:
            batches.append((offset, offset, [kind]))
    return batches
