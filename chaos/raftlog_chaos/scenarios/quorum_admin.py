"""Admin clients of a simulated cluster. Each changes its own resources, and records what must be true afterwards.

A response determines the state of the resource. After a lost response, two states are possible. The client then no
longer uses that topic (or that user's quota), since the request may take effect at any later time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection
from typing import Any, Final

from raftlog.base.errors import InvalidReplicationFactor, TopicAlreadyExists
from raftlog.metadata.image import MetadataImage
from raftlog_chaos.simulator.cluster import PORT, SimCluster
from raftlog_chaos.workloads.raw_client import (
    ALTER_CLIENT_QUOTAS,
    AWAY,
    CREATE_TOPICS,
    DELETE_TOPICS,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    Client,
    create_topic_request,
    shapes,
)

NONE: Final = 0
UNKNOWN_TOPIC: Final = 3
INVALID_REPLICATION_FACTOR: Final = InvalidReplicationFactor.code
TOPIC_ALREADY_EXISTS: Final = TopicAlreadyExists.code
"""Kafka's error codes."""

SETTING: Final = "retention.ms"
TOPIC_RESOURCE: Final = 2
SET: Final = 0

USER: Final = "user"
QUOTA: Final = "producer_byte_rate"

MAX_TOPICS: Final = 6
"""Limit for topics of a client, so that metadata images stay small."""

ABSENT: Final = None
"""Stands for the setting of a topic that does not exist."""


class Promises:
    """The expected metadata after the responses to all clients. `broken` lists wrong responses."""

    def __init__(self) -> None:
        self.topics: dict[str, frozenset[str | None]] = {}
        """The possible values of each topic's setting. ABSENT: the topic may not exist."""
        self.quotas: dict[str, frozenset[float | None]] = {}
        """The possible quotas of each user. None: the user may have no quota."""
        self.producer_ids: set[int] = set()
        self.broken: list[str] = []
        self.answers = 0

    def judge(self, image: MetadataImage) -> list[str]:
        """Return the errors in the metadata of a cluster at rest."""
        faults = list(self.broken)
        for name, possible in self.topics.items():
            found = image.config("topic", name).get(SETTING, "") if name in image.topics else ABSENT
            if found not in possible:
                faults.append(f"topic {name} should be {_shown(possible)} and is {_shown([found])}")
        for user, rates in self.quotas.items():
            rate = image.quotas.get(((USER, user),), {}).get(QUOTA)
            if rate not in rates:
                faults.append(f"the quota of {user} should be one of {set(rates)} and is {rate}")
        faults += [f"nobody asked for topic {name}" for name in image.topics if name not in self.topics]
        return faults


def _shown(possible: Collection[str | None]) -> str:
    return " or ".join("absent" if each is ABSENT else f"there with {each!r}" for each in possible)


class Admin:
    """A client with one request at a time, each to a random broker."""

    def __init__(self, name: str, cluster: SimCluster, promises: Promises, chance: random.Random) -> None:
        self.name = name
        self.promises = promises
        self.stopping = self.done = False
        self._cluster = cluster
        self._chance = chance
        self._clients = {
            node_id: Client(name, [(sim_node.host.name, PORT)], timeout_s=chance.choice((0.3, 1.5)))
            for node_id, sim_node in cluster.nodes.items()
        }
        self._mine: list[str] = []
        """Topics that certainly exist."""
        self._user = name
        """A user whose quota only this client changes."""
        self._number = 0
        self.pause_s = chance.choice((0.05, 0.1, 0.2))

    async def run(self) -> None:
        """Send random requests until `stopping` is set."""
        while not self.stopping:
            node_id = self._chance.choice(sorted(self._clients))
            deeds: list[Callable[[int], Any]] = [self.take_producer_id, self.limit]
            if len(self._mine) < MAX_TOPICS:
                deeds += [self.create, self.create]
            if self._mine:
                deeds += [self.delete, self.configure, self.configure]
            await self._chance.choice(deeds)(node_id)
            await asyncio.sleep(self.pause_s * self._chance.random())
        self.done = True

    async def _ask(self, node_id: int, api_key: int, message: Any) -> Any:
        """Return the response, or None if it was lost."""
        try:
            response = await self._clients[node_id].ask_any(api_key, message)
        except AWAY:
            await asyncio.sleep(0.02)
            return None
        self.promises.answers += 1
        return response

    async def create(self, node_id: int) -> bool:
        """Create a topic with a new name. Return whether that was acknowledged."""
        self._number += 1
        name, value = f"{self.name}-{self._number}", str(1_000_000 + self._number)
        topics = self.promises.topics
        topics[name] = frozenset({ABSENT, value})
        request = create_topic_request(name, partitions=1, configs={SETTING: value})
        response = await self._ask(node_id, CREATE_TOPICS, request)
        code = None if response is None else int(response.topics[0].error_code)
        if code == NONE:
            topics[name] = frozenset({value})
            self._mine.append(name)
        elif code == INVALID_REPLICATION_FACTOR:
            topics[name] = frozenset({ABSENT})
        elif code == TOPIC_ALREADY_EXISTS:
            self.promises.broken.append(f"topic {name} was created once and refused as existing")
        return code == NONE

    async def delete(self, node_id: int) -> None:
        """Delete a topic that this client created."""
        name = self._mine.pop(self._chance.randrange(len(self._mine)))
        topics = self.promises.topics
        before, topics[name] = topics[name], topics[name] | {ABSENT}
        seen = self._shows(node_id, name)
        make = shapes(DELETE_TOPICS)
        request = make.DeleteTopicsRequest(
            topics=(make.DeleteTopicState(name=name, topic_id=None),), timeout=1000
        )
        response = await self._ask(node_id, DELETE_TOPICS, request)
        code = None if response is None else int(response.responses[0].error_code)
        if code == NONE:
            topics[name] = frozenset({ABSENT})
        elif code == UNKNOWN_TOPIC and seen:
            self.promises.broken.append(f"topic {name} was deleted once and refused as unknown")
        elif code == UNKNOWN_TOPIC:
            topics[name] = before | {ABSENT}  # this broker did not know the topic yet

    def _shows(self, node_id: int, name: str) -> bool:
        node = self._cluster.nodes[node_id].node
        return node is not None and name in node.metadata.published_image.topics

    async def configure(self, node_id: int) -> None:
        """Set a topic's setting to a value that it never had."""
        name = self._chance.choice(self._mine)
        self._number += 1
        value = str(1_000_000 + self._number)
        topics = self.promises.topics
        topics[name] |= {value}
        make = shapes(INCREMENTAL_ALTER_CONFIGS)
        resource = make.AlterConfigsResource(
            resource_type=TOPIC_RESOURCE,
            resource_name=name,
            configs=(make.AlterableConfig(name=SETTING, config_operation=SET, value=value),),
        )
        request = make.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
        response = await self._ask(node_id, INCREMENTAL_ALTER_CONFIGS, request)
        if response is not None and int(response.responses[0].error_code) == NONE:
            topics[name] = frozenset({value})
        else:
            self._mine.remove(name)

    async def limit(self, node_id: int) -> None:
        """Set a user's quota to a value that it never had, or remove it."""
        self._number += 1
        rate = float(1_000_000 + self._number) if self._chance.random() < 0.8 else None
        quotas, user = self.promises.quotas, self._user
        quotas[user] = quotas.get(user, frozenset({None})) | {rate}
        make = shapes(ALTER_CLIENT_QUOTAS)
        change = make.OpData(key=QUOTA, value=rate or 0.0, remove=rate is None)
        entity = (make.EntityData(entity_type=USER, entity_name=user),)
        request = make.AlterClientQuotasRequest(
            entries=(make.EntryData(entity=entity, ops=(change,)),), validate_only=False
        )
        response = await self._ask(node_id, ALTER_CLIENT_QUOTAS, request)
        if response is not None and int(response.entries[0].error_code) == NONE:
            quotas[user] = frozenset({rate})
        else:
            self._user = f"{self.name}-{self._number}"

    async def take_producer_id(self, node_id: int) -> None:
        """Request a producer id, as an idempotent producer does. No id may be given twice."""
        make = shapes(INIT_PRODUCER_ID)
        request = make.InitProducerIdRequest(transactional_id=None, producer_id=-1, producer_epoch=-1)
        response = await self._ask(node_id, INIT_PRODUCER_ID, request)
        if response is None or int(response.error_code) != NONE:
            return
        given = int(response.producer_id)
        if given in self.promises.producer_ids:
            self.promises.broken.append(f"producer id {given} was given twice")
        self.promises.producer_ids.add(given)
