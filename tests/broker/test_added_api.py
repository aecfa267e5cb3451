"""An API is one file with one row. This test adds an API that raftlog does not serve, and changes no other file."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from raftlog.base.errors import ClusterAuthorizationFailed
from raftlog.broker import handlers
from raftlog.broker.api import Api, NoChange
from raftlog.broker.handlers import api_versions
from raftlog.protocol.message_builders import request_builders
from raftlog.security.acls import NoRights, Operation, ResourceType
from tests.broker.fakes import FakeClient, FakePartitionServer, request
from tests.broker.handlers.test_rights import ALICE, GuardedBroker, Row, allow
from tests.kit.waits import PATIENCE_S

KEY, VERSION, NAME = 34, 2, "alter_replica_log_dirs"

FILE = '''
"""AlterReplicaLogDirs 1-2: every directory is an unknown one."""

from raftlog.broker.api import Api, Change
from raftlog.broker.audited_changes import named_partitions
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import Demanded, Operation, ResourceType, Right

LOG_DIR_NOT_FOUND = 57


def handle(broker, request, message):
    make = response_builders(request.api_key, request.api_version)
    return make.AlterReplicaLogDirsResponse(
        throttle_time=0,
        results=tuple(
            make.AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=tuple(
                    make.AlterReplicaLogDirPartitionResult(partition_index=each, error_code=LOG_DIR_NOT_FOUND)
                    for each in topic.partitions
                ),
            )
            for directory in message.dirs
            for topic in directory.topics
        ),
    )


def error_response(request, message, error):
    make = response_builders(request.api_key, request.api_version)
    refused = make.AlterReplicaLogDirPartitionResult(partition_index=-1, error_code=error.code)
    topic = make.AlterReplicaLogDirTopicResult(topic_name="", partitions=(refused,))
    return make.AlterReplicaLogDirsResponse(throttle_time=0, results=(topic,))


API = Api(
    key=34,
    handle=handle,
    error_response=error_response,
    needs=Demanded((Right(Operation.ALTER, ResourceType.CLUSTER),)),
    max_parts=10,
    audit=Change(
        lambda _, response: named_partitions(response.results, "topic_name", "partitions", "partition_index")
    ),
    controllers=False,
)
'''


@pytest.fixture(autouse=True)
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put the file beside the other handlers."""
    (tmp_path / f"{NAME}.py").write_text(FILE)
    monkeypatch.setattr(handlers, "__path__", [*handlers.__path__, str(tmp_path)])
    caches: Any = (handlers.served, handlers._module, api_versions._listed)
    for each in caches:
        each.cache_clear()
    yield
    for each in caches:
        each.cache_clear()
    sys.modules.pop(f"{handlers.__name__}.{NAME}", None)


def _moves(make: Any, topic: str, partitions: int = 1) -> dict[str, Any]:
    moved = make.AlterReplicaLogDirTopic(name=topic, partitions=tuple(range(partitions)))
    return {"dirs": (make.AlterReplicaLogDir(path="/elsewhere", topics=(moved,)),)}


def _frame(partitions: int) -> bytes:
    make = request_builders(KEY, VERSION)
    message = make.AlterReplicaLogDirsRequest(**_moves(make, "orders", partitions))
    return request(KEY, VERSION, 1, message)


def _client() -> FakeClient:
    return FakePartitionServer().connect()


async def test_an_added_api_is_advertised_and_answered() -> None:
    """ApiVersions lists it, in the versions of Kafka's schema."""
    pipe = _client()
    make = request_builders(18, 3)
    pipe.send(
        request(18, 3, 1, make.ApiVersionsRequest(client_software_name="a", client_software_version="1"))
    )
    await pipe.wait()
    listed = {each.api_key: (each.min_version, each.max_version) for each in pipe.answer(18, 3).api_keys}
    assert listed[KEY] == (1, 2)
    pipe.send(_frame(2))
    await pipe.wait()
    (topic,) = pipe.answer(KEY, VERSION).results
    assert [(each.partition_index, int(each.error_code)) for each in topic.partitions] == [(0, 57), (1, 57)]


async def test_the_row_of_an_added_api_demands_its_right_and_writes_the_audit_log() -> None:
    """The handler contains neither."""
    row = Row(KEY, VERSION, ((Operation.ALTER, ResourceType.CLUSTER),), _moves)
    (topic,) = (await GuardedBroker().ask(row, "orders")).results
    assert topic.partitions[0].error_code == ClusterAuthorizationFailed.code
    with capture_logs() as logs:
        await GuardedBroker(allow(Operation.ALTER, ResourceType.CLUSTER)).ask(row, "orders")
    (line,) = [each for each in logs if each["event"] == "metadata_change"]
    assert (line["principal"], line["api"], line["outcome"]) == (ALICE, NAME, "failed")
    assert line["failed"] == ["orders-0"]


def test_a_row_without_a_decision_is_a_type_error() -> None:
    """No API is open, unlimited or unaudited by oversight."""
    decided: dict[str, Any] = {
        "key": KEY,
        "handle": None,
        "needs": NoRights(),
        "max_parts": 10,
        "audit": NoChange(),
        "controllers": False,
    }
    assert Api(**decided).name == NAME
    for name in decided:
        with pytest.raises(TypeError, match=name):
            Api(**{field: value for field, value in decided.items() if field != name})


async def test_the_row_of_an_added_api_limits_its_requests() -> None:
    """This one cannot express an error of a whole request, so the connection ends."""
    pipe = _client()
    pipe.send(_frame(20))
    async with asyncio.timeout(PATIENCE_S):
        while not pipe.transport.closed:
            await asyncio.sleep(0)
