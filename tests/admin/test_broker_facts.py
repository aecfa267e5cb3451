"""Claims about a broker's facts, its log levels and the quotas of clients, from real nodes."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

from raftlog import __version__
from raftlog.admin.native.broker_facts import ROUTES, _loggers
from raftlog.security.acls import Demanded, Operation, ResourceType, Right
from tests.admin.conftest import Api
from tests.kit.waits import until


def process_at(node: Api, path: str) -> object:
    """Return the version and start of a broker's process, None if it did not answer."""
    return node.get(path).body["process"]


def test_facts_of_every_broker_come_from_the_broker_itself(node: Api) -> None:
    """Whichever node is asked; an unknown broker is 404."""
    for broker_id in (1, 2, 3):
        at = f"/v1/brokers/{broker_id}/facts"
        until(partial(process_at, node, at), "a node that has just started answers in time")
        facts = node.get(at).body
        assert (facts["broker_id"], facts["answers"], facts["is_fenced"]) == (broker_id, True, False)
        assert facts["process"]["version"] == __version__
        assert 0 < facts["process"]["started_ms"] <= facts["process"]["now_ms"]
        (disk,) = facts["disks"]
        assert 0 < disk["usable_bytes"] <= disk["total_bytes"]
        assert not disk["is_offline"]
        assert facts["leaders"] <= facts["replicas"]
    assert node.get("/v1/brokers/99/facts").status == 404


def test_loggers_take_the_rights_of_configs() -> None:
    """Kafka's: DESCRIBE_CONFIGS to see their levels, ALTER_CONFIGS of the cluster to change them."""
    (change,) = (each for each in ROUTES if each.method == "PUT")
    assert change.rights == Demanded((Right(Operation.ALTER_CONFIGS, ResourceType.CLUSTER),))
    asked: list[tuple[Operation, ResourceType]] = []

    def may(operation: Operation, resource_type: ResourceType) -> bool:
        asked.append((operation, resource_type))
        return False

    call: Any = SimpleNamespace(may=may)  # it fails if the broker is asked
    assert asyncio.run(_loggers(call, 1)) == []
    assert asked == [(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)]


def test_level_of_a_logger_is_changed_on_its_broker_alone(node: Api) -> None:
    """An unknown logger or level is refused."""
    name = node.get("/v1/brokers/2/facts").body["loggers"][0]["name"]

    def level_on(broker_id: int) -> str:
        found = node.get(f"/v1/brokers/{broker_id}/facts").body["loggers"]
        return next(each["level"] for each in found if each["name"] == name)

    before = level_on(1)
    assert node.ask("PUT", f"/v1/brokers/2/loggers/{name}", {"level": "ERROR"}).status == 204
    assert (level_on(2), level_on(1)) == ("ERROR", before)
    assert node.ask("PUT", f"/v1/brokers/2/loggers/{name}", {"level": before}).status == 204
    assert node.ask("PUT", f"/v1/brokers/2/loggers/{name}", {"level": "LOUD"}).status == 422
    assert node.ask("PUT", "/v1/brokers/2/loggers/no.such.logger", {"level": "INFO"}).status == 400


def test_quotas_are_set_and_removed_together(node: Api) -> None:
    """By user, client id or both; null removes; an unknown quota is refused."""
    entity = [{"kind": "user", "name": "alice"}, {"kind": "client-id", "name": None}]
    wanted = {"entity": entity, "values": {"producer_byte_rate": 1024, "consumer_byte_rate": 2048}}
    assert node.ask("POST", "/v1/client-quotas", wanted).status == 204
    (found,) = node.get("/v1/client-quotas").body["data"]
    assert found["values"] == wanted["values"]
    assert sorted(found["entity"], key=str) == sorted(entity, key=str)
    gone = {"entity": entity, "values": {"producer_byte_rate": None, "consumer_byte_rate": None}}
    assert node.ask("POST", "/v1/client-quotas", gone).status == 204
    assert node.get("/v1/client-quotas").body["data"] == []
    unknown = {"entity": entity, "values": {"no_such_rate": 1}}
    assert node.ask("POST", "/v1/client-quotas", unknown).status == 400
    assert node.ask("POST", "/v1/client-quotas", {"entity": [], "values": {}}).status == 422
