"""ACLs and users are created and removed while controllers fail over and brokers restart, from snapshots too.

Users log in all the while, write, read, wait for records, and subscribe by an expression. A broker applies each change
as soon as it has replayed it. From then on a user without the right is refused, also in a waiting fetch; a removed user
cannot log in. No ACL and no user is lost by a change of another, by a snapshot or by a failover. A topic that a
user may not see looks like a missing topic.
"""

from __future__ import annotations

import asyncio
from uuid import UUID

from raftlog.base.config.security import STANDARD_AUTHORIZER
from raftlog.metadata.image import MetadataImage
from raftlog.node import Node
from raftlog.quorum.snapshot_generator import SnapshotPolicy
from raftlog_chaos.checkers.rights import RightsBook
from raftlog_chaos.faults.fault_swarm import FaultSwarm
from raftlog_chaos.scenarios.choreography import SERVED_S, Choreography
from raftlog_chaos.scenarios.endurance import Report
from raftlog_chaos.simulator.cluster import CONTROLLER_PORT, PORT
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.testbeds.testbed import NODE_ID
from raftlog_chaos.workloads.guest import BACKOFF_S, GROUPS, Guest, Site
from raftlog_chaos.workloads.producer import Producer
from raftlog_chaos.workloads.raw_client import AWAY, FIND_COORDINATOR, Client, create_topic, shapes
from raftlog_chaos.workloads.rights_admin import RightsAdmin, User

LOGIN_PORT = 9094
MECHANISMS = {"ann": "SCRAM-SHA-256", "ben": "SCRAM-SHA-512", "cat": "SCRAM-SHA-256"}
"""The users, each with a mechanism."""
GUESTS_EACH = 2
"""How many clients at a time log in as each user."""
TOPICS = ("orders", "orders-eu", "bills")
ABSENT = ("orders-us", "nothing")
FEED_S = 0.5
"""About how often each topic gets a record, so that waiting fetches are woken now and then."""
SETTINGS = {
    "listeners": f"PLAINTEXT://0.0.0.0:{PORT},USERS://0.0.0.0:{LOGIN_PORT},CONTROLLER://0.0.0.0:{CONTROLLER_PORT}",
    "advertised.listeners": f"PLAINTEXT://node{NODE_ID}:{PORT},USERS://node{NODE_ID}:{LOGIN_PORT}",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,USERS:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS",
}
"""Users have a listener of their own; the administrator and the clients of other scenarios need no login."""
FAULTS = (
    "kill",
    "kill-leader",
    "kill-controller",
    "power-cut",
    "terminate",
    "restart-all",
    "isolate-controller",
    "isolate-one",
    "cut-pair",
    "power_loss_then_back",
    "power_loss_at_work",
    "blackout_and_back",
    "relay",
)
"""None of them holds back what a broker has said, so that users know when it was decided."""


class RightsScenario(Choreography):
    """The stage, the administrator, and the users."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop, settings=SETTINGS)
        self.cluster.compaction = SnapshotPolicy(entries=self.chance.choice((10, 20, 100)))
        self.weather = FaultSwarm(
            loop, self.cluster, self.chance.sample(FAULTS, self.chance.randint(2, len(FAULTS)))
        )
        self.book = RightsBook(self.history.blame)
        self.cluster.watchers.append(self._watch)
        users = {user: User(mechanism, loop.host(user).address) for user, mechanism in MECHANISMS.items()}
        self.admin = RightsAdmin(
            Client("rights", self.cluster.bootstrap),
            book=self.book,
            history=self.history,
            chance=loop.stream("rights"),
            topics=(*TOPICS, *ABSENT),
            users=users,
        )
        self.site = Site(
            {node_id: (each.host.name, LOGIN_PORT) for node_id, each in self.cluster.nodes.items()},
            loop.network.latency_s,
            self._leader_of,
        )
        self.guests = {
            name: self._guest(name, user)
            for user in MECHANISMS
            for name in (user, *(f"{user}{number}" for number in range(2, GUESTS_EACH + 1)))
        }

    def _guest(self, name: str, user: str) -> Guest:
        guest = Guest(
            Client(name, ()),
            site=self.site,
            book=self.book,
            history=self.history,
            chance=self.loop.stream(f"guest/{name}"),
            identity=(user, MECHANISMS[user], self.loop.host(name).address),
        )
        guest.topics = (*TOPICS, *ABSENT)
        return guest

    def _watch(self, node_id: int, node: Node) -> None:
        self.book.began(node_id, self.loop.time())

        def take(old: MetadataImage, new: MetadataImage) -> None:
            if old.acls is not new.acls or old.scram is not new.scram:
                self.book.take(node_id, self.loop.time(), rules=new.acls, credentials=new.scram.items())

        node.metadata.subscribe(take)

    def _leader_of(self, topic: str) -> int | None:
        state = self.cluster.state(topic, 0)
        return None if state is None or state.leader < 0 else state.leader

    async def begin(self) -> None:
        await super().begin()
        admin = Client("admin", self.cluster.bootstrap)
        await self.loop.host("admin").start(_open_groups(admin))
        for topic in TOPICS:
            await self.loop.host("admin").start(create_topic(admin, topic, partitions=1))
            self.site.topic_ids[topic] = await self.loop.host("admin").start(_topic_id(admin, topic))
            name = f"feed-{topic}"
            feed = Producer(
                Client(name, self.cluster.bootstrap),
                topic,
                0,
                history=self.history,
                chance=self.loop.stream(name),
            )
            feed.pause_s = FEED_S
            self.producers.append(feed)
            self.loop.host(name).start(feed.run())
        self.loop.host("rights").start(self.admin.run())
        for name, guest in self.guests.items():
            self.loop.host(name).start(guest.run())

    async def stormy(self, seconds: float) -> None:
        """Alternate storms and changes: in a storm alone hardly any change would get through."""
        end = self.loop.time() + seconds
        while self.loop.time() < end:
            await self.weather.storm(self.a_while(0.3, 1.0))
            await self.weather.calm()
            self.cluster.start()
            wanted = self.book.acknowledged + self.chance.randint(3, 12)
            await self.cluster.until(
                lambda wanted=wanted: self.book.acknowledged >= wanted,  # type: ignore[misc]
                SERVED_S,
                "changes of rights",
            )

    async def calm_down(self) -> None:
        """End the faults, let the administrator finish, and wait until every broker has the newest rights."""
        await self.weather.clear_up(SERVED_S)
        self.admin.stopping = True
        await self.cluster.until(lambda: self.admin.done, SERVED_S, "the administrator")
        await self.cluster.until(
            lambda: self.book.have_all(self.cluster.nodes), SERVED_S, "every node has the newest rights"
        )
        wanted = self.book.judged + 20
        await self.cluster.until(lambda: self.book.judged >= wanted, SERVED_S, "users meet the newest rights")
        for guest in self.guests.values():
            guest.stopping = True


async def _open_groups(client: Client) -> None:
    """Have the topic made that groups are kept in."""
    asked = shapes(FIND_COORDINATOR).FindCoordinatorRequest(key=GROUPS, key_type=0)
    while True:
        try:
            if not (await client.ask_any(FIND_COORDINATOR, asked)).error_code:
                return
        except AWAY:
            pass
        await asyncio.sleep(BACKOFF_S)


async def _topic_id(client: Client, topic: str) -> UUID:
    while topic not in client.topic_ids:
        try:
            await client.refresh(topic)
        except AWAY:
            pass
        await asyncio.sleep(BACKOFF_S)
    return client.topic_ids[topic]


async def rights(loop: SimLoop, seconds: float = 6.0) -> Report:
    """Change rights amid faults for some virtual seconds. Raises AssertionError."""
    scene = RightsScenario(loop)
    await scene.begin()
    await scene.stormy(seconds)
    await scene.calm_down()
    report = await scene.end()
    guests = scene.guests.values()
    met = {
        "changes": scene.book.acknowledged,
        "let in": sum(each.let_in for each in guests),
        "refused": sum(each.refused for each in guests),
        "logins": sum(each.logins for each in guests),
        "failed logins": sum(each.failed_logins for each in guests),
        "assignments": sum(each.assigned for each in guests),
    }
    assert all(met.values()), f"the scenario proved little: {met}"
    return report
