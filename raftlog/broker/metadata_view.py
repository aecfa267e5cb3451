"""Shows a metadata image to a client: brokers of one listener, topics, partitions; for Metadata and similar APIs.

A topic's part of a Metadata response is cached as bytes until the topic or the brokers change. So a new image of a
large cluster costs only what changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from raftlog.base.env import Env
from raftlog.base.errors import (
    NONE,
    LeaderNotAvailable,
    ListenerNotFound,
    ReplicaNotAvailable,
)
from raftlog.base.types import INTERNAL_TOPICS, NO_BROKER
from raftlog.broker.controller_session import may_be_led_elsewhere
from raftlog.broker.local_broker import LocalBroker
from raftlog.broker.long_work.turns import Weighed, each_part
from raftlog.broker.unreachable_brokers import NO_BROKERS, UnreachableIds
from raftlog.metadata.image import BrokerState, Endpoint, MetadataImage, PartitionState, TopicState
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.codec import encode_entity
from raftlog.protocol.message_builders import response_builders
from raftlog.protocol.writer import PreEncoded

NOT_ASKED: Final = -(2**31)
"""Authorized operations that were not requested (KIP-430)."""

_LISTENER_ERROR_FROM: Final = 6
_STALE_TOPICS_KEPT: Final = 100


class EncodedTopic(NamedTuple):
    """One partition as clients see it."""

    error_code: int
    leader: int
    offline: tuple[int, ...]


class BrokersView:
    """The brokers of an image as the clients of one listener see them."""

    __slots__ = ("gone", "listed", "live", "reachable", "source")

    def __init__(
        self, source: Mapping[int, BrokerState], listener: str, gone: UnreachableIds = NO_BROKERS
    ) -> None:
        self.source = source
        self.gone = gone
        self.live = frozenset(each.broker_id for each in source.values() if not each.fenced)
        self.listed: dict[int, Endpoint] = {}
        for broker_id in sorted(self.live | (gone.listed & source.keys())):
            endpoint = source[broker_id].endpoint(listener)
            if endpoint is not None:
                self.listed[broker_id] = endpoint
        self.reachable = {each: endpoint for each, endpoint in self.listed.items() if each in self.live}

    def see(self, state: PartitionState, *, listener_errors: bool = True) -> EncodedTopic:
        """Return a partition's error, its leader if clients can reach it, and its offline replicas."""
        live = self.live
        offline = tuple([each for each in state.replicas if each not in live])
        gone = self.gone
        if state.leader in gone.unnamed or may_be_led_elsewhere(state, gone.asked, gone.silent):
            return EncodedTopic(LeaderNotAvailable.code, NO_BROKER, offline)
        if state.leader in self.reachable:
            return EncodedTopic(NONE, state.leader, offline)
        if listener_errors and state.leader in live:
            return EncodedTopic(ListenerNotFound.code, NO_BROKER, offline)
        return EncodedTopic(LeaderNotAvailable.code, NO_BROKER, offline)

    def controller_id(self, broker: LocalBroker, image: MetadataImage) -> int:
        """Return the node for admin requests: the active controller, else this broker, else any broker: all forward.

        A client sent to a dead node waits for it: librdkafka does not retry before its request times out. Without a
        controller kafka-go fails at once.
        """
        controller = image.controller_id
        if (
            controller in self.reachable
            and controller not in self.gone.unnamed
            and broker.in_touch(controller)
        ):
            return controller
        own_id = broker.config.node_id
        return (
            own_id
            if own_id in self.reachable
            else min(self.reachable.keys() - self.gone.unnamed, default=NO_BROKER)
        )


class MetadataView:
    """Topics and brokers in one version of the Metadata response, for one listener and one set of brokers.

    A response is made in turns, all of it with a single view. `operations_of` a topic depends on the sender, so a view
    with it is never shared.
    """

    def __init__(
        self, version: int, brokers: BrokersView, operations_of: Callable[[str], int] | None = None
    ) -> None:
        self._version = version
        self._operations_of = operations_of
        self._make = response_builders(ApiKey.METADATA, version)
        self._topics: dict[str, tuple[TopicState, PreEncoded]] = {}
        self.brokers = brokers
        self.broker_entries = tuple(
            self._make.MetadataResponseBroker(
                node_id=broker_id,
                host=endpoint.host,
                port=endpoint.port,
                rack=brokers.source[broker_id].rack,
            )
            for broker_id, endpoint in brokers.listed.items()
        )

    def live_broker_entries(self) -> tuple[Any, ...]:
        """Return the brokers that are not fenced."""
        return tuple(each for each in self.broker_entries if each.node_id in self.brokers.live)

    def forget_stale(self, topics: int) -> None:
        """Drop the cached topics if there are now so many that much of it is of deleted topics."""
        if len(self._topics) > 2 * topics + _STALE_TOPICS_KEPT:
            self._topics.clear()

    async def topic(self, env: Env, topic: TopicState) -> Weighed:
        """Return the topic's part of the response, which is as much work as its partitions, or none if it was kept."""
        kept = self._topics.get(topic.name)
        if kept is not None and kept[0] is topic:
            return Weighed(kept[1], 0)
        partitions = await each_part(
            env, enumerate(topic.partitions), lambda each: encode_entity(self._partition(*each))
        )
        encoded = encode_entity(
            self._make.MetadataResponseTopic(
                error_code=NONE,
                name=topic.name,
                topic_id=topic.topic_id,
                is_internal=topic.name in INTERNAL_TOPICS,
                partitions=tuple(partitions),
                topic_authorized_operations=(
                    NOT_ASKED if self._operations_of is None else self._operations_of(topic.name)
                ),
            )
        )
        self._topics[topic.name] = (topic, encoded)
        return Weighed(encoded, len(partitions))

    def _partition(self, index: int, state: PartitionState) -> Any:
        error_code, leader, offline = self.brokers.see(
            state, listener_errors=self._version >= _LISTENER_ERROR_FROM
        )
        replicas, isr = state.replicas, state.isr
        if self._version == 0 and offline:
            # Version 0 has no field for offline replicas, so they are left out.
            error_code = error_code or ReplicaNotAvailable.code
            replicas = tuple(each for each in replicas if each not in offline)
            isr = tuple(each for each in isr if each not in offline)
        return self._make.MetadataResponsePartition(
            error_code=error_code,
            partition_index=index,
            leader_id=leader,
            leader_epoch=state.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=offline,
        )


class MetadataViews:
    """The views of one broker, by version and listener: a few dozen at most."""

    def __init__(self) -> None:
        self._views: dict[tuple[int, str], MetadataView] = {}
        self._topic_count = 0
        """Topics at the last request."""

    def of(
        self,
        image: MetadataImage,
        gone: UnreachableIds,
        *,
        version: int,
        listener: str,
        operations_of: Callable[[str], int] | None = None,
    ) -> MetadataView:
        """Return the view of an image: the last view, with its cache, unless the brokers have changed.

        A view with a sender's authorized operations is not kept, since they differ between senders.
        """
        if operations_of is not None:
            return MetadataView(version, BrokersView(image.brokers, listener, gone), operations_of)
        key = (version, listener)
        view = self._views.get(key)
        if view is None or image.brokers is not view.brokers.source or gone != view.brokers.gone:
            view = self._views[key] = MetadataView(version, BrokersView(image.brokers, listener, gone))
        topics, before = len(image.topics), self._topic_count
        self._topic_count = topics
        for each in self._views.values() if topics < before else (view,):
            each.forget_stale(topics)
        return view
