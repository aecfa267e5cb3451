"""The producer of a simulated client: idempotent, several records in flight, retries until a record's time is over.

One lane per partition keeps the order. A record that timed out leaves a gap in its producer's sequence. So the next
record of all takes a new producer id (KIP-98: sequences begin at 0 with it).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from raftlog.records.batch import ProducerIdAndSequence, build_batch, new_record
from raftlog_chaos.workloads.port import DELIVERY_TIMEOUT_S, Definite, Fate, Indefinite, fate_of
from raftlog_chaos.workloads.produce_frames import Answer, decode_produced, encode_produce
from raftlog_chaos.workloads.raw_client import AWAY, INIT_PRODUCER_ID, Client, RawConnection, shapes

IN_FLIGHT: Final = 5
"""Unacknowledged batches per partition: as many as a broker remembers."""
BACKOFF_S: Final = 0.03
BROKER_TIMEOUT_MS: Final = 1500

Where = tuple[str, int]


class _Record:
    """One record, until it is acknowledged or given up."""

    __slots__ = ("answer", "done", "expires_at", "refused", "stamp", "unknown", "value")

    def __init__(self, value: bytes, done: asyncio.Future[int], expires_at: float) -> None:
        self.value = value
        self.done = done
        self.expires_at = expires_at
        self.stamp: ProducerIdAndSequence | None = None
        self.answer: asyncio.Future[Answer] | None = None
        self.refused = False
        self.unknown = 0
        """Attempts with an unknown outcome."""

    def take_answer(self) -> Answer | None:
        """Return the answer to the last attempt, if any; it counts as unanswered from now on."""
        answer, self.answer = self.answer, None
        if answer is None or not answer.done() or answer.cancelled() or answer.exception() is not None:
            return None
        return answer.result()

    def note_refusal(self, fate: Fate) -> None:
        """An attempt was refused."""
        self.answer = None
        if fate is Fate.NEVER:
            self.refused, self.unknown = True, 0
        elif fate is Fate.NOT_THIS_TIME:
            self.unknown -= 1


class _Lane:
    """One partition's records, in order."""

    def __init__(self, where: Where) -> None:
        self.where = where
        self.records: deque[_Record] = deque()
        self.sequence = 0
        # a broker accepts any sequence of an unknown producer (KIP-360): the first record goes alone
        self.window = 1
        self.task: asyncio.Task[None] | None = None


class SimProducer:
    """Lives on the host of its client. `acks` other than -1: no id, one attempt."""

    def __init__(self, client: Client, *, acks: int = -1) -> None:
        self.client = client
        self.acks = acks
        self._stamp: ProducerIdAndSequence | None = None
        self._broken = False
        self._naming = asyncio.Lock()
        self._lanes: dict[Where, _Lane] = {}

    def enqueue(self, where: Where, value: bytes, done: asyncio.Future[int]) -> None:
        """Take a record; `done` becomes its offset, Definite or Indefinite. A partition's records keep their order."""
        if self._broken and not any(each.records for each in self._lanes.values()):
            self._lanes.clear()
            self._stamp, self._broken = None, False
        lane = self._lanes.get(where)
        if lane is None:
            lane = self._lanes[where] = _Lane(where)
        loop = asyncio.get_running_loop()
        lane.records.append(_Record(value, done, loop.time() + DELIVERY_TIMEOUT_S))
        if len(lane.records) == 1:  # its first step comes after whatever is enqueued along with this
            lane.task = loop.create_task(self._run(lane))

    async def _run(self, lane: _Lane) -> None:
        while lane.records:
            await self._round(lane)

    async def _round(self, lane: _Lane) -> None:
        """Send all sendable records, take the oldest answer; after a failure, look for the leader."""
        try:
            if self.acks == -1 and self._stamp is None:
                await self._name()
            if lane.where not in self.client.leaders:
                await self.client.refresh(lane.where[0])
            wire, _ = await self.client.leader_wire(*lane.where)
            self._send_unsent(lane, wire)
            answer = lane.records[0].answer
            assert answer is not None
            well = self._settle(lane, await self.client.answer(wire, answer))
        except AWAY:
            well = False
        if not well and lane.records:
            await self._again(lane)

    async def _name(self) -> None:
        """Get a producer id, if there is none."""
        async with self._naming:
            if self._stamp is not None:
                return
            request = shapes(INIT_PRODUCER_ID).InitProducerIdRequest(
                transactional_id=None, producer_id=-1, producer_epoch=-1
            )
            response = await self.client.ask_any(INIT_PRODUCER_ID, request)
            if int(response.error_code):
                raise LookupError(f"no producer id: error {int(response.error_code)}")
            self._stamp = ProducerIdAndSequence(response.producer_id, response.producer_epoch, 0)

    def _send_unsent(self, lane: _Lane, wire: RawConnection) -> None:
        for number, record in enumerate(lane.records):
            if record.answer is not None or number >= lane.window:
                continue
            if record.stamp is None:
                record.stamp = self._next_stamp(lane)
            record.answer = self._ask(lane.where, wire, record.value, record.stamp)
            record.unknown += 1

    def _next_stamp(self, lane: _Lane) -> ProducerIdAndSequence:
        if self._stamp is None:
            return ProducerIdAndSequence()
        lane.sequence += 1
        return self._stamp._replace(base_sequence=lane.sequence - 1)

    def _ask(
        self, where: Where, wire: RawConnection, value: bytes, stamp: ProducerIdAndSequence
    ) -> asyncio.Future[Answer]:
        batch = build_batch([new_record(None, value, timestamp=-1)], producer=stamp)
        return wire.ask_by(
            lambda number: encode_produce(
                number, self.client.name, where, batch, acks=self.acks, timeout_ms=BROKER_TIMEOUT_MS
            ),
            decode_produced,
        )

    def _settle(self, lane: _Lane, answer: Answer) -> bool:
        """Take the answer to a lane's oldest record; False: it has to be sent again, or was given up."""
        head = lane.records[0]
        if answer.error_code == 0:
            lane.records.popleft()
            lane.window = IN_FLIGHT
            head.done.set_result(answer.base_offset)
            return True
        head.note_refusal(fate_of(answer.error_code))
        if head.refused or self.acks != -1:
            self._give_up(lane, f"error {answer.error_code}")
        return False

    async def _again(self, lane: _Lane) -> None:
        """Wait for what is in flight, believe the good news, give up what is too old, and look for the leader."""
        flying = [each.answer for each in lane.records if each.answer is not None]
        if flying:
            await asyncio.wait(flying, timeout=self.client.timeout_s)
        while lane.records and (answer := lane.records[0].take_answer()) is not None:
            if not self._settle(lane, answer):
                break
        for record in lane.records:
            if (late := record.take_answer()) is not None and late.error_code:
                # most likely out of order behind a refused batch: that is not final
                unknown = fate_of(late.error_code) is Fate.UNKNOWN
                record.note_refusal(Fate.UNKNOWN if unknown else Fate.NOT_THIS_TIME)
        if not lane.records:
            return
        tried = self.acks != -1 and lane.records[0].unknown
        if tried or asyncio.get_running_loop().time() >= lane.records[0].expires_at:
            self._give_up(lane, "not delivered in time")
            return
        await asyncio.sleep(BACKOFF_S)
        try:
            await self.client.refresh(lane.where[0])
        except AWAY:
            pass

    def _give_up(self, lane: _Lane, why: str) -> None:
        """Give up a whole lane: a broker accepts no batch behind a gap in the sequence."""
        while lane.records:
            record = lane.records.popleft()
            error = Indefinite if record.unknown else Definite
            record.done.set_exception(error(why))
        self.client.leaders.pop(lane.where, None)
        self._broken = True
