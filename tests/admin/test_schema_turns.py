"""Schemas that take long hold up no other client, and no change."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from raftlog.admin.errors import ApiError
from raftlog.admin.schema_registry import answers
from raftlog.admin.schema_registry import registry as module
from raftlog.admin.schema_registry.answers import SchemaBody
from raftlog.admin.schema_registry.registry import Registry
from raftlog.schemas.decisions import Change, Registration
from raftlog.schemas.errors import INCOMPATIBLE, NO_LEADER, STORE_TIMED_OUT, SchemaError
from raftlog.schemas.formats import identity
from raftlog.schemas.records import SchemaWritten
from raftlog.schemas.registry_state import RegistryState
from raftlog.schemas.schema import Schema

SUBJECT = "rides-value"
SHOP, BANK = ({"properties": {"owner": name}} for name in ("shop", "bank"))
RULES = {"domainRules": [{"name": "check", "type": "CEL"}]}
ANN, BEN = ("127.0.0.1", "", False), ("127.0.0.2", "", False)


class Store:
    """A store that decides at once. `before_change` runs when a change has its turn."""

    def __init__(self) -> None:
        self.state = RegistryState()
        self.before_change: Callable[[], None] = lambda: None
        self.is_changing = False

    async def current(self) -> RegistryState:
        return self.state

    async def change(self, decide: Callable[[RegistryState], Awaitable[Change]]) -> Any:
        self.before_change()
        self.is_changing = True
        change = await decide(self.state)
        self.is_changing = False
        for each in change.records:
            assert isinstance(each, SchemaWritten)
            self.state.apply(each, identity(each.schema))
        return change.reply


def record_of(*fields: str) -> Schema:
    """Return a record; its fields have no default, so that others are incompatible."""
    listed = [{"name": each, "type": "long"} for each in fields]
    return Schema("AVRO", json.dumps({"type": "record", "name": "R", "fields": listed}))


def registration(schema: Schema) -> Registration:
    return Registration(SUBJECT, schema, identity(schema))


def registry_of(store: Store) -> tuple[Registry, list[bool]]:
    """Return a registry, and for each piece of its work whether a change had its turn meanwhile."""
    seen: list[bool] = []

    async def offload(work: Callable[[], Any]) -> Any:
        seen.append(store.is_changing)
        return work()

    unused: Any = None
    return Registry(store, offload, forwarder=unused, copy=unused), seen  # type: ignore[arg-type]


def test_a_client_has_one_schema_in_work_and_others_do_not_wait_for_more() -> None:
    """Many registrations of one client would otherwise be ahead of another client's."""

    async def scenario() -> None:
        registry, _ = registry_of(Store())
        order: list[str] = []

        async def use(client: tuple[str, str], name: str, until: asyncio.Event) -> None:
            async with registry.turn_of(client):
                order.append(name)
                await until.wait()

        held, free = asyncio.Event(), asyncio.Event()
        free.set()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(use(ANN, "ann 1", held))
            tasks.create_task(use(ANN, "ann 2", free))
            await tasks.create_task(use(BEN, "ben", free))
            assert order == ["ann 1", "ben"]
            held.set()
        assert order == ["ann 1", "ben", "ann 2"]
        assert not registry._clients

    asyncio.run(scenario())


def test_a_client_that_waits_too_long_for_its_own_schemas_gets_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error is a timeout, which clients retry."""
    monkeypatch.setattr(module, "THREAD_WAIT_S", 0.0)

    async def scenario() -> None:
        registry, _ = registry_of(Store())
        async with registry.turn_of(ANN):
            with pytest.raises(SchemaError) as found:
                async with registry.turn_of(ANN):
                    raise AssertionError("there are two")
        assert found.value.code == STORE_TIMED_OUT

    asyncio.run(scenario())


@pytest.mark.parametrize("parsed_chars", [module.PARSED_CHARS, 0])
def test_comparing_holds_up_no_other_change(parsed_chars: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The versions that are there are compared before the change has its turn, whatever is parsed meanwhile."""
    monkeypatch.setattr(module, "PARSED_CHARS", parsed_chars)

    async def scenario() -> None:
        store = Store()
        registry, seen = registry_of(store)
        for number, schema in enumerate((record_of("f", "g"), record_of("f")), start=1):
            found = await registry.register(registration(schema))
            assert found.version == number
        assert seen and not any(seen)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "given", [{}, {"metadata": BANK}, {"rule_set": RULES}, {"metadata": {}, "rule_set": {}}]
)
def test_taking_over_metadata_holds_up_no_other_change(given: dict[str, Any]) -> None:
    """The identity with what the schema takes over is computed before the change has its turn."""

    async def scenario() -> None:
        store = Store()
        registry, seen = registry_of(store)
        first = record_of("f", "g")._replace(metadata=SHOP, rule_set=RULES)
        await registry.register(registration(first))
        found = await registry.register(registration(record_of("f")._replace(**given)))
        stored = store.state.schema_of(found)
        expected = {"metadata": SHOP, "rule_set": RULES, **given}
        assert (found.version, stored.metadata, stored.rule_set) == (
            2,
            expected["metadata"] or None,
            expected["rule_set"] or None,
        )
        assert seen and not any(seen)

    asyncio.run(scenario())


@pytest.mark.parametrize("metadata", [BANK, None])
def test_metadata_that_changes_meanwhile_is_taken_over_with_its_own_identity(metadata: Any) -> None:
    """The schema with the metadata of the latest version is there under another subject, and has its id."""

    async def scenario() -> None:
        store = Store()
        registry, _ = registry_of(store)
        old, new = record_of("f", "g"), record_of("f")
        await registry.register(registration(old._replace(metadata=SHOP)))

        def change_metadata() -> None:
            for subject, version, id, schema in ((SUBJECT, 2, 6, old), ("trips-value", 1, 7, new)):
                described = schema._replace(metadata=metadata)
                store.state.apply(SchemaWritten(subject, version, id, described), identity(described))

        store.before_change = change_metadata
        found = await registry.register(registration(new))
        assert (found.version, found.id) == (3, 7)

    asyncio.run(scenario())


def test_version_that_comes_meanwhile_is_compared_too() -> None:
    """It is compared in the change's turn, after which no other can come."""

    async def scenario() -> None:
        store = Store()
        registry, seen = registry_of(store)
        first, new = record_of("f", "g"), record_of("f")
        await registry.register(registration(first))
        other = record_of("h")
        store.before_change = lambda: store.state.apply(SchemaWritten(SUBJECT, 2, 2, other), identity(other))
        with pytest.raises(SchemaError) as found:
            await registry.register(registration(new))
        assert found.value.code == INCOMPATIBLE
        assert seen[-1]

    asyncio.run(scenario())


def test_two_nodes_that_forward_to_each_other_do_not_wait_for_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the lead moves, each may take the other for the leader; on one machine all have the same address."""
    registries = [registry_of(Store())[0] for _ in range(2)]

    def call_at(node: int, *, is_forwarded: bool) -> Any:
        return SimpleNamespace(
            node=SimpleNamespace(registry=registries[node], id=node),
            body=SchemaBody(schema="{}"),
            raw=SimpleNamespace(remote="127.0.0.1"),
            caller=SimpleNamespace(principal=""),
            is_forwarded=is_forwarded,
        )

    async def scenario() -> None:
        both = asyncio.Barrier(2)

        async def forward(handler: Any, call: Any, *, repeatable: bool) -> str:
            if call.is_forwarded:
                return "answered"
            await both.wait()
            other: str = await answers._answer_once(
                handler, call_at(1 - call.node.id, is_forwarded=True), repeatable=repeatable
            )
            return other

        monkeypatch.setattr(answers, "_answer_or_forward", forward)
        unused: Any = None
        asked = (
            answers._answer_once(unused, call_at(node, is_forwarded=False), repeatable=True)
            for node in range(2)
        )
        assert await asyncio.gather(*asked) == ["answered"] * 2

    monkeypatch.setattr(module, "THREAD_WAIT_S", 0.5)
    asyncio.run(scenario())


async def test_a_forwarded_request_is_not_retried_at_a_node_without_the_lead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It goes back at once, and the node that the client asked looks for the next leader."""
    attempts: list[bool] = []

    async def refuse(handler: Any, call: Any, *, repeatable: bool) -> Any:
        attempts.append(call.is_forwarded)
        raise SchemaError(NO_LEADER, "this node does not lead")

    monkeypatch.setattr(answers, "_answer_once", refuse)
    monkeypatch.setattr(answers, "RETRY_S", 0.0)
    monkeypatch.setattr(answers, "PATIENCE_S", 0.05)
    for is_forwarded in (True, False):
        call: Any = SimpleNamespace(is_forwarded=is_forwarded)
        with pytest.raises(ApiError) as refused:
            await answers.by_leader(refuse)(call)
        assert refused.value.body.error_code == NO_LEADER
    assert attempts.count(True) == 1
    assert attempts.count(False) > 1
