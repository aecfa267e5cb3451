"""AlterClientQuotas and DescribeClientQuotas (KIP-546), and the quota of controller mutations (KIP-599)."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.base.config import load_config
from raftlog.base.errors import InvalidRequest, NotController, ThrottlingQuotaExceeded, UnsupportedVersion
from raftlog.controller.client_quotas import decide_alter_client_quotas
from raftlog.controller.mutation_quotas import MutationQuotas
from raftlog.metadata.controller_api import (
    AlterClientQuotas,
    CreatePartitions,
    CreateTopics,
    CreateTopicsReply,
    DeleteTopics,
    TopicCreation,
    TopicResult,
    TopicResults,
)
from raftlog.metadata.mutation_charges import ChargeMutations
from raftlog.metadata.record_replay import apply_records
from raftlog.protocol.message_builders import request_builders
from raftlog.protocol.schema import message_type
from raftlog.security.quotas import CLIENT_ID, MUTATION, USER, Entity, Windows
from tests.broker.fakes import FakeClient, request
from tests.broker.handlers.one_broker import HandlerSetup, versions
from tests.broker.network.test_client_quotas import QuotaWorld

DESCRIBE, ALTER = 48, 49
CREATE, DELETE, METADATA = 19, 20, 3
EXACT, DEFAULT, SPECIFIED = 0, 1, 2


class QuotaSetup(HandlerSetup):
    """A broker with a controller that decides at once."""

    def __init__(self) -> None:
        super().__init__()
        self.answers[AlterClientQuotas] = self._decide

    def _decide(self, asked: AlterClientQuotas) -> Any:
        decision = decide_alter_client_quotas(self.image, asked, load_config())
        self.image = apply_records(self.image, decision.records)
        return decision.reply

    async def alter(
        self, *entries: tuple[dict[str, str | None], dict[str, float | None]], version: int = 1, **fields: Any
    ) -> Any:
        make = request_builders(ALTER, version)
        asked = tuple(
            make.EntryData(
                entity=tuple(
                    make.EntityData(entity_type=kind, entity_name=name) for kind, name in who.items()
                ),
                ops=tuple(
                    make.OpData(key=key, value=value or 0.0, remove=value is None)
                    for key, value in ops.items()
                ),
            )
            for who, ops in entries
        )
        return await self.call(ALTER, version, entries=asked, **fields)

    async def describe(
        self, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1
    ) -> Any:
        make = request_builders(DESCRIBE, version)
        asked = tuple(
            make.ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components
        )
        return await self.call(DESCRIBE, version, components=asked, strict=strict)

    async def found(
        self, *components: tuple[str, int, str | None], strict: bool = False
    ) -> dict[Entity, dict[str, float]]:
        answer = await self.describe(*components, strict=strict)
        assert answer.error_code == 0
        return {
            tuple((part.entity_type, part.entity_name) for part in each.entity): {
                value.key: value.value for value in each.values
            }
            for each in answer.entries
        }


@pytest.mark.parametrize("version", versions(ALTER))
async def test_quotas_are_set_and_removed_each_entity_on_its_own(version: int) -> None:
    """An invalid entity changes no quota and affects no other entity; the response repeats its name."""
    setup = QuotaSetup()
    answer = await setup.alter(
        ({"user": "al"}, {"producer_byte_rate": 1_000.0, "consumer_byte_rate": 2_000.0}),
        ({"user": "al", "client-id": None}, {"request_percentage": 12.5}),
        ({"host": "al"}, {"producer_byte_rate": 1.0}),
        ({"ip": "::0:1"}, {"connection_creation_rate": 3.0}),
        version=version,
    )
    assert [each.error_code for each in answer.entries] == [0, 0, InvalidRequest.code, 0]
    assert [part.entity_type for part in answer.entries[1].entity] == ["user", "client-id"]
    assert setup.image.quotas == {
        (("user", "al"),): {"producer_byte_rate": 1_000.0, "consumer_byte_rate": 2_000.0},
        (("client-id", None), ("user", "al")): {"request_percentage": 12.5},
        (("ip", "::1"),): {"connection_creation_rate": 3.0},
    }
    await setup.alter(
        ({"user": "al"}, {"producer_byte_rate": None, "consumer_byte_rate": None}), version=version
    )
    assert (("user", "al"),) not in setup.image.quotas


@pytest.mark.parametrize(
    ("who", "ops", "says"),
    [
        ({}, {"producer_byte_rate": 1.0}, "entity: must be user"),
        ({"user": "al", "ip": None}, {"producer_byte_rate": 1.0}, "entity: must be user"),
        ({"user": ""}, {"producer_byte_rate": 1.0}, "1 to 249 characters"),
        ({"ip": "example.org"}, {"connection_creation_rate": 1.0}, "not an IP address"),
        ({"user": "al"}, {"connection_creation_rate": 1.0}, "key: must be one of"),
        ({"ip": None}, {"producer_byte_rate": 1.0}, "key: must be one of connection_creation_rate"),
        ({"user": "al"}, {"producer_byte_rate": 0.0}, "more than 0"),
        ({"user": "al"}, {"producer_byte_rate": -1.0}, "more than 0"),
        ({"user": "al"}, {"producer_byte_rate": float("nan")}, "more than 0"),
        ({"user": "al"}, {"request_percentage": float("inf")}, "more than 0"),
        ({"user": "al"}, {"producer_byte_rate": 1.5}, "whole number"),
    ],
)
async def test_bad_input_is_named(
    who: dict[str, str | None], ops: dict[str, float | None], says: str
) -> None:
    """INVALID_REQUEST with the field and its rule."""
    setup = QuotaSetup()
    answer = await setup.alter((who, ops))
    assert answer.entries[0].error_code == InvalidRequest.code
    assert says in answer.entries[0].error_message
    assert not setup.image.quotas


async def test_validation_changes_nothing() -> None:
    """`validate_only` says what would happen."""
    setup = QuotaSetup()
    answer = await setup.alter(({"user": "al"}, {"producer_byte_rate": 1.0}), validate_only=True)
    assert (answer.entries[0].error_code, len(setup.image.quotas)) == (0, 0)


async def test_a_controller_that_is_away_is_an_error_for_each_entity() -> None:
    """The client asks again."""
    world = QuotaWorld({})

    async def refuse(asked: Any, *, timeout: float | None = None) -> Any:
        raise NotController("no leader")

    world.broker.submit = refuse
    client = world.connect()
    make = request_builders(ALTER, 1)
    entries = tuple(
        make.EntryData(entity=(make.EntityData(entity_type="user", entity_name=name),), ops=())
        for name in "ab"
    )
    client.send(request(ALTER, 1, 1, make.AlterClientQuotasRequest(entries=entries, validate_only=False)))
    await client.wait()
    answer = client.answer(ALTER, 1)
    assert [each.error_code for each in answer.entries] == [NotController.code] * 2
    assert [each.entity[0].entity_name for each in answer.entries] == ["a", "b"]


async def test_quotas_are_described_by_what_matches() -> None:
    """Exact names, the default, any name; strict: no other entity type may be named (KIP-546)."""
    setup = QuotaSetup()
    await setup.alter(
        ({"user": "al"}, {"producer_byte_rate": 1.0}),
        ({"user": None}, {"producer_byte_rate": 2.0}),
        ({"user": "al", "client-id": "app"}, {"producer_byte_rate": 3.0}),
        ({"client-id": "app"}, {"producer_byte_rate": 4.0}),
        ({"ip": "10.0.0.1"}, {"connection_creation_rate": 5.0}),
    )

    async def rates(*components: tuple[str, int, str | None], strict: bool = False) -> set[float]:
        found = await setup.found(*components, strict=strict)
        return {value for values in found.values() for value in values.values()}

    assert await rates() == {1.0, 2.0, 3.0, 4.0, 5.0}
    assert await rates(("user", EXACT, "al")) == {1.0, 3.0}
    assert await rates(("user", EXACT, "al"), strict=True) == {1.0}
    assert await rates(("user", DEFAULT, None)) == {2.0}
    assert await rates(("user", SPECIFIED, None)) == {1.0, 2.0, 3.0}
    assert await rates(("client-id", EXACT, "app"), ("user", EXACT, "al")) == {3.0}
    assert await rates(("ip", SPECIFIED, None)) == {5.0}


@pytest.mark.parametrize("version", versions(DESCRIBE))
@pytest.mark.parametrize(
    "components",
    [
        (("", SPECIFIED, None),),
        (("user", 3, None),),
        (("user", EXACT, None),),
        (("user", DEFAULT, "al"),),
        (("user", SPECIFIED, None), ("user", DEFAULT, None)),
        (("user", SPECIFIED, None), ("ip", SPECIFIED, None)),
    ],
)
async def test_a_question_that_makes_no_sense_is_refused(
    version: int, components: tuple[tuple[str, int, str | None], ...]
) -> None:
    """INVALID_REQUEST, as from Kafka."""
    with pytest.raises(InvalidRequest):
        await QuotaSetup().describe(*components, version=version)


async def test_a_question_about_an_unknown_kind_of_entity_is_not_supported() -> None:
    """UNSUPPORTED_VERSION, as from Kafka: a later version might know it."""
    with pytest.raises(UnsupportedVersion):
        await QuotaSetup().describe(("host", SPECIFIED, None), version=1)


# --- controller mutations


class MutationWorld(QuotaWorld):
    """Clients of a broker may create and delete 0.5 partitions a second, five and a half at once."""

    def __init__(self) -> None:
        super().__init__({((CLIENT_ID, None),): {MUTATION: 0.5}}, auto_create_topics_enable=True)
        self.charged = MutationQuotas(Windows())
        self.broker.submit = self._decide
        self.asked: list[Any] = []
        self.server.schemas_loaded.clear()

    async def _decide(self, asked: Any, *, timeout: float | None = None) -> Any:
        self.asked.append(asked)
        match asked:
            case ChargeMutations():
                return self.charged.charge(self.quotas.in_force, asked, self.loop.now)
            case CreateTopics():
                return CreateTopicsReply(tuple(TopicCreation(each.name, 36) for each in asked.topics))
            case CreatePartitions() | DeleteTopics():
                return TopicResults(tuple(TopicResult(each.name, None, 36) for each in asked.topics))


async def ask(client: FakeClient, api_key: int, version: int, **fields: Any) -> Any:
    kind = message_type(api_key, version, "request").__name__
    message = getattr(request_builders(api_key, version), kind)(**fields)
    client.send(request(api_key, version, 1, message))
    await client.wait()
    return client.answer(api_key, version)


def creations(version: int, *sizes: int) -> dict[str, Any]:
    make = request_builders(CREATE, version)
    topics = tuple(
        make.CreatableTopic(name=f"t{number}", num_partitions=size, replication_factor=1)
        for number, size in enumerate(sizes)
    )
    return {"topics": topics, "timeout": 1_000}


async def test_topics_beyond_the_quota_are_refused_to_newer_clients() -> None:
    """KIP-599: from version 6 on, one by one; the last that is begun may overdraw. The connection is muted."""
    world = MutationWorld()
    client = world.connect()
    answer = await ask(client, CREATE, 7, **creations(7, 5, 5, 5))
    exceeded = ThrottlingQuotaExceeded.code
    assert [each.error_code for each in sorted(answer.topics, key=lambda each: each.name)] == [
        36,
        36,
        exceeded,
    ]
    assert answer.throttle_time == 9_000
    assert "try again in 9000 ms" in answer.topics[0].error_message
    assert not client.transport.reading
    world.loop.advance(9)
    assert client.transport.reading
    assert world.server.counters.throttled == {MUTATION: 1}


async def test_older_clients_are_only_made_to_wait() -> None:
    """They do not know THROTTLING_QUOTA_EXCEEDED."""
    world = MutationWorld()
    client = world.connect()
    answer = await ask(client, CREATE, 5, **creations(5, 5, 5, 5))
    assert {each.error_code for each in answer.topics} == {36}
    assert answer.throttle_time == 19_000
    assert not client.transport.reading


async def test_within_the_quota_no_request_waits_and_the_controller_is_not_asked() -> None:
    """A user without such a quota costs no question."""
    world = MutationWorld()
    client = world.connect()
    answer = await ask(client, CREATE, 7, **creations(7, 2))
    assert answer.throttle_time == 0
    assert client.transport.reading
    world.quotas.follow({((USER, "al"),): {MUTATION: 0.5}})
    world.asked.clear()
    await ask(client, CREATE, 7, **creations(7, 50))
    assert [type(each) for each in world.asked] == [CreateTopics]


async def test_deletion_counts_the_partitions_that_there_are() -> None:
    """A topic that does not exist is not counted."""
    world = MutationWorld()
    client = world.connect()
    make = request_builders(DELETE, 6)
    names = ("words", "nowhere", "nothing")
    asked = tuple(make.DeleteTopicState(name=name, topic_id=None) for name in names)
    await ask(client, DELETE, 6, topics=asked, timeout=1_000)
    charged = next(each for each in world.asked if isinstance(each, ChargeMutations))
    assert (charged.sizes, charged.strict) == ((4, 0, 0), True)


async def test_topics_that_come_to_be_by_being_asked_for_count_too() -> None:
    """Metadata has no place for the reason, so clients ask again: LEADER_NOT_AVAILABLE."""
    world = MutationWorld()
    client = world.connect()
    make = request_builders(METADATA, 9)
    asked = tuple(make.MetadataRequestTopic(name=f"new{number}") for number in range(9))
    answer = await ask(client, METADATA, 9, topics=asked, allow_auto_topic_creation=True)
    assert sorted(each.error_code for each in answer.topics) == [3] * 6 + [5] * 3
    assert answer.throttle_time > 0
    created = next(each for each in world.asked if isinstance(each, CreateTopics))
    assert len(created.topics) == 6
