"""One broker as an operator looks at it: disks, replicas, version, uptime and the levels of its loggers."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, Final, Literal

import msgspec

from raftlog import __version__
from raftlog.admin.errors import ApiError, check
from raftlog.admin.kafka_client import BrokerUnreachable
from raftlog.admin.kafka_rest.brokers import broker_of
from raftlog.admin.native.passing_on import ask_node
from raftlog.admin.route import Call, Route
from raftlog.base.errors import KafkaError
from raftlog.base.turns import each_part
from raftlog.metadata.image import MetadataImage
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.client_versions import builders_for
from raftlog.security.acls import DESCRIBE_CLUSTER, Demanded, Operation, ResourceType, Right

LOGGER: Final = 8
"""The resource type of the levels of a broker's loggers."""
SET: Final = 0
ANSWER_S: Final = 3.0
"""Longest wait for the broker. A paused process would hold the page for long."""


class Disk(msgspec.Struct):
    """A log directory. Bytes are null if its file system does not report them."""

    log_dir: str
    is_offline: bool
    total_bytes: int | None
    usable_bytes: int | None


class LogLevel(msgspec.Struct):
    """A logger and its level, in Kafka's words."""

    name: str
    level: str


class NodeTimes(msgspec.Struct):
    """The version of a node's process, and its start in Unix milliseconds; `now_ms`: its wall clock."""

    version: str
    started_ms: int
    now_ms: int


class BrokerFacts(msgspec.Struct):
    """A broker. `process` is null if its HTTP API does not answer this node; then `process_unknown` says why.

    `answers` is whether Kafka's API answers. `loggers` are for callers with DESCRIBE_CONFIGS of the cluster.
    """

    broker_id: int
    rack: str | None
    is_fenced: bool
    answers: bool
    replicas: int
    leaders: int
    out_of_sync: int
    disks: list[Disk]
    loggers: list[LogLevel]
    process: NodeTimes | None
    process_unknown: str = ""


class NewLevel(msgspec.Struct, forbid_unknown_fields=True):
    """The level that a logger gets."""

    level: Literal["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"]


class _Counts:
    """A broker's replicas in the metadata."""

    def __init__(self, image: MetadataImage, broker_id: int) -> None:
        self.image = image
        self.broker_id = broker_id
        self.replicas = self.leaders = self.out_of_sync = 0

    def add(self, topic: str) -> None:
        """Count the replicas of one topic."""
        for state in self.image.topics[topic].partitions:
            if self.broker_id in state.replicas:
                self.replicas += 1
                self.leaders += state.leader == self.broker_id
                self.out_of_sync += self.broker_id not in state.isr


async def get_broker_facts(call: Call) -> BrokerFacts:
    """Count in this node's metadata, and ask the broker itself for the rest."""
    image = call.node.image()
    broker = broker_of(call, image)
    counts = _Counts(image, broker.broker_id)
    await each_part(
        call, list(image.topics), counts.add, size_of=lambda name: len(image.topics[name].partitions)
    )
    disks, loggers, (process, process_unknown) = await asyncio.gather(
        _soon(_disks(call, broker.broker_id)),
        _soon(_loggers(call, broker.broker_id)),
        _process(call, broker.broker_id),
    )
    return BrokerFacts(
        broker.broker_id,
        broker.rack,
        broker.fenced,
        disks is not None,
        counts.replicas,
        counts.leaders,
        counts.out_of_sync,
        disks or [],
        loggers or [],
        process,
        process_unknown,
    )


async def _soon(asked: Any) -> Any:
    """Return an answer, or None if there is none soon."""
    try:
        async with asyncio.timeout(ANSWER_S):
            return await asked
    except (ApiError, BrokerUnreachable, KafkaError, TimeoutError):
        return None


async def _disks(call: Call, broker_id: int) -> list[Disk]:
    request = builders_for(ApiKey.DESCRIBE_LOG_DIRS).DescribeLogDirsRequest(topics=())
    answer = await call.asker.ask(ApiKey.DESCRIBE_LOG_DIRS, request, broker_id=broker_id, at_once=True)
    return [
        Disk(each.log_dir, bool(each.error_code), _bytes(each.total_bytes), _bytes(each.usable_bytes))
        for each in answer.results
    ]


def _bytes(found: int) -> int | None:
    return None if found < 0 else found


async def _loggers(call: Call, broker_id: int) -> list[LogLevel]:
    if not call.may(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER):
        return []
    make = builders_for(ApiKey.DESCRIBE_CONFIGS)
    resource = make.DescribeConfigsResource(
        resource_type=LOGGER, resource_name=str(broker_id), configuration_keys=None
    )
    request = make.DescribeConfigsRequest(
        resources=(resource,), include_synonyms=False, include_documentation=False
    )
    answer = await call.asker.ask(ApiKey.DESCRIBE_CONFIGS, request, broker_id=broker_id, at_once=True)
    (result,) = answer.results
    check(result.error_code, result.error_message)
    return [LogLevel(each.name, each.value) for each in sorted(result.configs, key=lambda each: each.name)]


async def _process(call: Call, broker_id: int) -> tuple[NodeTimes | None, str]:
    """Return the times of a broker's process, or why they are unknown."""
    try:
        async with asyncio.timeout(ANSWER_S):
            return await _times(call, broker_id), ""
    except TimeoutError:
        return None, f"its HTTP API did not answer within {ANSWER_S:.0f} s"
    except ApiError as error:
        if error.status == HTTPStatus.UNAUTHORIZED:
            return None, "its HTTP API asks for a login, which this node passes on only over TLS"
        return None, str(error)


async def _times(call: Call, broker_id: int) -> NodeTimes:
    if broker_id == call.node.config.node_id:
        return NodeTimes(__version__, call.node.started_ms, int(call.node.wall_clock_ms()))
    request = f"GET /v1/brokers/{broker_id}/facts"
    found: BrokerFacts = await ask_node(call, broker_id, request, BrokerFacts, with_login=False)
    if found.process is None:
        raise ApiError(
            503, f"node {broker_id} does not know its own process: {found.process_unknown}", code=503
        )
    return found.process


async def set_log_level(call: Call) -> None:
    """Change the level of a broker's logger until its process ends, as kafka-configs does."""
    broker_id, name = broker_of(call, call.node.image()).broker_id, call.path["logger_name"]
    call.audit.update(broker_id=broker_id, logger=name, level=call.body.level)
    make = builders_for(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    change = make.AlterableConfig(name=name, config_operation=SET, value=call.body.level)
    resource = make.AlterConfigsResource(
        resource_type=LOGGER, resource_name=str(broker_id), configs=(change,)
    )
    request = make.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    answer = await call.asker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, broker_id=broker_id)
    (result,) = answer.responses
    check(result.error_code, result.error_message)


ONE: Final = "/v1/brokers/{broker_id:int}"
ROUTES: Final = (
    Route(
        "GET",
        f"{ONE}/facts",
        get_broker_facts,
        "Get a broker's disks, replicas, version, uptime and log levels",
        rights=DESCRIBE_CLUSTER,
    ),
    Route(
        "PUT",
        f"{ONE}/loggers/{{logger_name}}",
        set_log_level,
        "Change the level of a broker's logger",
        body=NewLevel,
        status=204,
        rights=Demanded((Right(Operation.ALTER_CONFIGS, ResourceType.CLUSTER),)),
    ),
)
