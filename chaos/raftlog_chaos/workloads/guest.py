"""A user that logs in with a right or a wrong password, and makes allowed and forbidden requests.

The book of rights gets every response, with the interval in which the broker decided on it. Anything but
TOPIC_AUTHORIZATION_FAILED counts as authorized, whether the topic exists or not.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

from raftlog.base.errors import TopicAuthorizationFailed
from raftlog.records.batch import build_batch, new_record
from raftlog.security.acls import Operation
from raftlog.security.scram_client import ScramClient
from raftlog_chaos.checkers.rights import Life, Rights, RightsBook
from raftlog_chaos.workloads.login import OddAnswer, log_in, salted_password
from raftlog_chaos.workloads.observations import Observations
from raftlog_chaos.workloads.producer import produce_request
from raftlog_chaos.workloads.raw_client import (
    AWAY,
    CONSUMER_GROUP_HEARTBEAT,
    FETCH,
    METADATA,
    PRODUCE,
    Client,
    RawConnection,
    shapes,
)

REFUSED: Final = TopicAuthorizationFailed.code
WAITS_MS: Final = (0, 300, 1000)
"""Up to how long a fetch waits."""
HALFWAY_S: Final = (0.0, 0.0, 0.02, 0.5)
"""Up to how long a login pauses between its two messages."""
BACKOFF_S: Final = 0.02
SOON_S: Final = 0.25
"""A request about topics that the user may not see is answered within this, whether they exist or not."""
NO_SESSION: Final = -1
MAX_BYTES: Final = 1 << 20
GROUPS: Final = "groups-"
"""The prefix of all group names."""
REBALANCE_MS: Final = 30_000


class Site:
    """The brokers as users reach them: addresses by node, the delays of the network, and the leader of a topic."""

    def __init__(
        self,
        addresses: dict[int, tuple[str, int]],
        delays_s: tuple[float, float],
        leader_of: Callable[[str], int | None],
    ) -> None:
        self.addresses = addresses
        self.delays_s = delays_s
        self.leader_of = leader_of
        self.topic_ids: dict[str, UUID] = {}
        """The ids of the existing topics."""


class Visit:
    """One connection of an authenticated user."""

    def __init__(self, wire: RawConnection, life: Life, led: Sequence[str]) -> None:
        self.wire = wire
        self.life = life
        self.led = led
        """Topics that the broker led when the visit began; for others it only answers that it does not lead."""
        self.session = (0, NO_SESSION)
        """Id and epoch of its fetch session; NO_SESSION as epoch: fetches without a session."""
        self.topics: list[str] = []
        """The topics of its fetch session."""
        self.asked: dict[str, int] = {}
        """The offsets that the session knows of, by topic."""
        self.group: str | None = None
        """The group of its own that the visitor is in, with an epoch."""
        self.member_epoch = 0


class Guest:
    """`run` until `stopping`. `topics` are names of topics, some of which do not exist."""

    def __init__(
        self,
        client: Client,
        *,
        site: Site,
        book: RightsBook,
        history: Observations,
        chance: random.Random,
        identity: tuple[str, str, str],
    ) -> None:
        """`identity`: user, mechanism and address."""
        self.client = client
        self.user, self._mechanism, self._host = identity
        self.stopping = False
        self.let_in = self.refused = self.logins = self.failed_logins = self.assigned = 0
        self.topics: Sequence[str] = ()
        self._site = site
        self._book = book
        self._history = history
        self._chance = chance
        self._positions: dict[str, int] = {}

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self.stopping:
            wire = None
            try:
                node_id = self._destination()
                async with asyncio.timeout(self.client.timeout_s):
                    connect = loop.create_connection(
                        partial(RawConnection, self.user), *self._site.addresses[node_id]
                    )
                    _, wire = await connect
                await self._visit(wire, self._book.lives[node_id])
            except AWAY:
                await asyncio.sleep(BACKOFF_S)
            except OddAnswer as error:
                self._history.blame(f"{self.user}: {error}")
            finally:
                if wire is not None:
                    wire.close()
            await asyncio.sleep(self._chance.random() * BACKOFF_S)

    def _destination(self) -> int:
        """Return a node: often the leader of a topic, since the others only answer that they do not lead."""
        leader = self._site.leader_of(self._chance.choice(self.topics))
        if leader is not None and leader in self._site.addresses and self._chance.random() < 0.7:
            return leader
        return self._chance.choice(sorted(self._site.addresses))

    async def _visit(self, wire: RawConnection, life: Life) -> None:
        if not await self._log_in(wire, life):
            return
        led = [each for each in self.topics if self._site.leader_of(each) == life.node_id]
        visit = Visit(wire, life, led)
        if self._chance.random() < 0.5:
            visit.session = (0, 0)
            visit.topics = sorted({self._topic(visit), self._topic(visit)})
        deeds = (self._fetch, self._fetch, self._produce, self._look, self._subscribe)
        for _ in range(self._chance.randint(1, 12)):
            if self.stopping:
                return
            await self._chance.choice(deeds)(visit)

    # -- the login

    async def _log_in(self, wire: RawConnection, life: Life) -> bool:
        password = self._password()
        nonce = f"{self._chance.getrandbits(96):x}"
        scram = ScramClient(self._mechanism, self.user, password, nonce=nonce, derive=salted_password)
        began_at = self._now()
        admitted = await log_in(self.client, wire, scram, mechanism=self._mechanism, between=self._dawdle)
        self.logins += admitted
        self.failed_logins += not admitted
        if admitted:  # it is the end of a login that counts
            self._judge(life, "a login", partial(_admits, self.user, password), let_in=True, since=None)
        else:
            self._judge(life, "a login", partial(_admits, self.user, password), let_in=False, since=began_at)
        return admitted

    async def _dawdle(self) -> None:
        await asyncio.sleep(self._chance.random() * self._chance.choice(HALFWAY_S))

    def _password(self) -> str:
        """Return the newest password, or a former password, or a password that was never valid."""
        known = [each.passwords[self.user] for each in self._book.states if self.user in each.passwords]
        return (
            known[-1 if self._chance.random() < 0.8 else 0] if known and self._chance.random() < 0.9 else "x"
        )

    # -- what rights are about

    def _topic(self, visit: Visit) -> str:
        """Return a topic: most often a topic that the broker leads."""
        led = visit.led if visit.led and self._chance.random() < 0.7 else self.topics
        return self._chance.choice(led)

    async def _produce(self, visit: Visit) -> None:
        topic = self._topic(visit)
        batch = build_batch([new_record(None, self.user.encode(), timestamp=-1)])
        request = produce_request((topic, 0), batch, acks=self._chance.choice((1, -1)))
        began_at = self._now()
        answer = await self.client.answer(visit.wire, visit.wire.send(PRODUCE, request))
        code = int(answer.responses[0].partition_responses[0].error_code)
        self._heard(visit, "a produce", topic, Operation.WRITE, code, since=began_at)

    async def _fetch(self, visit: Visit) -> None:
        epoch = visit.session[1]
        topics = visit.topics if epoch != NO_SESSION else [self._topic(visit)]
        request = self._fetch_request(visit, topics)
        began_at = self._now()
        answer = await self.client.answer(visit.wire, visit.wire.send(FETCH, request))
        if answer.error_code:
            visit.session, visit.asked = (0, min(epoch, 0)), {}  # it was evicted
            return
        if epoch != NO_SESSION:
            visit.session = (answer.session_id, epoch + 1 if answer.session_id else 0)
        told = {each.topic: each.partitions[0] for each in answer.responses}
        for topic in topics:
            found = told.get(topic)
            code = 0 if found is None else int(found.error_code)
            # what leaves was decided on when it left: a fetch that waited is no exception
            self._heard(
                visit, "a fetch", topic, Operation.READ, code, since=began_at if code == REFUSED else None
            )
            if found is not None and code != REFUSED and found.high_watermark >= 0:
                self._positions[topic] = int(found.high_watermark)

    def _fetch_request(self, visit: Visit, topics: Sequence[str]) -> Any:
        make = shapes(FETCH)
        positions = {each: self._positions.get(each, 0) for each in topics}
        if visit.session[1] > 0:
            positions = {each: at for each, at in positions.items() if visit.asked.get(each) != at}
        visit.asked |= positions
        wanted = tuple(
            make.FetchTopic(
                topic=topic,
                partitions=(
                    make.FetchPartition(
                        partition=0,
                        current_leader_epoch=-1,
                        fetch_offset=offset,
                        last_fetched_epoch=-1,
                        log_start_offset=-1,
                        partition_max_bytes=MAX_BYTES,
                    ),
                ),
            )
            for topic, offset in positions.items()
        )
        return make.FetchRequest(
            replica_id=-1,
            max_wait=int(self._chance.random() * self._chance.choice(WAITS_MS)),
            min_bytes=1,
            max_bytes=MAX_BYTES,
            session_id=visit.session[0],
            session_epoch=visit.session[1],
            topics=wanted,
        )

    async def _look(self, visit: Visit) -> None:
        """Request the metadata of topics. A response says nothing about a topic that the user may not see, without
        delay.
        """
        make = shapes(METADATA)
        asked = self._chance.sample(self.topics, self._chance.randint(1, 2))
        request = make.MetadataRequest(
            topics=tuple(make.MetadataRequestTopic(topic_id=None, name=topic) for topic in asked),
            allow_auto_topic_creation=False,
        )
        began_at = self._now()
        answer = await self.client.answer(visit.wire, visit.wire.send(METADATA, request))
        took_s = self._now() - began_at
        codes = {each.name: int(each.error_code) for each in answer.topics}
        for each in answer.topics:
            self._heard(visit, "a look", each.name, Operation.DESCRIBE, codes[each.name], since=began_at)
            if codes[each.name] == REFUSED and (each.partitions or each.topic_id):
                self._history.blame(f"{self.user} was told of {each.name}, which it may not see")
        if took_s > SOON_S and set(codes.values()) == {REFUSED}:
            self._history.blame(f"{self.user} may see none of {asked}, but heard so after {took_s:.3f} s")

    async def _subscribe(self, visit: Visit) -> None:
        """Read all topics that match an expression, alone in a group: join, or send the next heartbeat.

        It reports that it has given up all partitions, so that each answer has all that it may see. Most brokers do not
        coordinate the group, and are left alone.
        """
        make = shapes(CONSUMER_GROUP_HEARTBEAT)
        if visit.group is None:
            visit.group, visit.member_epoch = f"{GROUPS}{self._chance.getrandbits(64):x}", 0
        request = make.ConsumerGroupHeartbeatRequest(
            group_id=visit.group,
            member_id="alone",
            member_epoch=visit.member_epoch,
            rebalance_timeout=REBALANCE_MS,
            subscribed_topic_names=(),
            subscribed_topic_regex=".*",
            topic_partitions=(),
        )
        began_at = self._now()
        answer = await self.client.answer(visit.wire, visit.wire.send(CONSUMER_GROUP_HEARTBEAT, request))
        if answer.error_code:
            visit.group = None
            return
        visit.member_epoch = answer.member_epoch
        told = {each.topic_id for each in answer.assignment.topic_partitions}
        self.assigned += 1
        for topic, topic_id in self._site.topic_ids.items():
            code = 0 if topic_id in told else REFUSED
            self._heard(visit, "an expression", topic, Operation.DESCRIBE, code, since=began_at)

    def _heard(
        self, visit: Visit, what: str, topic: str, operation: Operation, code: int, *, since: float | None
    ) -> None:
        allows = partial(_allows, self.user, self._host, operation, topic)
        self._judge(
            visit.life, f"{what} of {self.user} at {topic}", allows, let_in=code != REFUSED, since=since
        )

    def _judge(
        self, life: Life, what: str, allows: Callable[[Rights], bool], *, let_in: bool, since: float | None
    ) -> None:
        """Judge an answer that has just come; `since` None: it was decided on as it left."""
        self.let_in += let_in
        self.refused += not let_in
        now = self._now()
        between = (now - self._site.delays_s[1] if since is None else since, now)
        self._book.judge(what, life, allows, let_in=let_in, between=between)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _allows(user: str, host: str, operation: Operation, topic: str, rights: Rights) -> bool:
    return rights.allows(user, host, operation, topic)


def _admits(user: str, password: str, rights: Rights) -> bool:
    return rights.admits(user, password)
