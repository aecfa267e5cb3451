"""Turns of the loop that are taken after the parts of a request are done: for the answer, and for the audit log."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from raftlog.base.errors import InvalidTopic, UnknownMemberId
from raftlog.base.turns import PARTS_AT_ONCE, TurnQueue
from raftlog.broker.audit import Audit
from raftlog.broker.audited_changes import audited
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers import delete_topics, leave_group, list_config_resources
from raftlog.broker.long_work.turns import completed
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import request_builders, response_builders

PARTS = 10 * PARTS_AT_ONCE


class CountedTurns(TurnQueue):
    """Gives the turns at once, and counts them."""

    taken = 0

    async def next(self) -> None:
        self.taken += 1


def broker_with(turns: CountedTurns, **more: Any) -> Any:
    return SimpleNamespace(env=SimpleNamespace(turns=turns), **more)


def context(api_key: int, version: int) -> RequestContext:
    return RequestContext(api_key, version, 1, "t", "PLAINTEXT", "127.0.0.1")


async def test_outcomes_of_a_large_change_are_counted_in_turns() -> None:
    """100,000 failed topics took 98 ms in one turn; the line has the first names and both counts."""
    turns, make = CountedTurns(), response_builders(ApiKey.DELETE_TOPICS, 6)
    broker: BrokerContext = broker_with(turns, audit=Audit(lambda: 0.0))
    results = tuple(
        make.DeletableTopicResult(name=f"t-{number}", topic_id=None, error_code=InvalidTopic.code)
        for number in range(PARTS)
    )

    async def answer() -> Any:
        return make.DeleteTopicsResponse(throttle_time=0, responses=results)

    with capture_logs() as logs:
        await audited(broker, delete_topics.API, context(ApiKey.DELETE_TOPICS, 6), None, answer())
    (line,) = [each for each in logs if each["event"] == "metadata_change"]
    assert line["failed"][0] == "t-0"
    assert line["failed"][-1] == f"and {PARTS - 20} more"
    assert line["outcome"] == "failed"
    assert turns.taken >= PARTS // PARTS_AT_ONCE - 1


@pytest.mark.parametrize("error", [None, UnknownMemberId()])
async def test_answer_to_many_members_that_leave_is_made_in_turns(error: UnknownMemberId | None) -> None:
    """100,000 members took 454 ms in one turn, after all of them had left in turns."""

    def ask(_method: object, _asked: object) -> asyncio.Future[None]:
        left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if error is None:
            left.set_result(None)
        else:
            left.set_exception(error)
        return left

    turns, make = CountedTurns(), request_builders(ApiKey.LEAVE_GROUP, 5)
    broker: BrokerContext = broker_with(turns, groups=SimpleNamespace(ask=ask))
    members = tuple(make.MemberIdentity(member_id=f"m-{number}", reason=None) for number in range(PARTS))
    message = make.LeaveGroupRequest(group_id="g", members=members)
    answer = await completed(broker.env, leave_group.handle(broker, context(ApiKey.LEAVE_GROUP, 5), message))
    assert len(answer.members) == PARTS
    leaving = PARTS // PARTS_AT_ONCE
    assert turns.taken >= 2 * leaving - 1


async def test_configs_of_very_many_resources_are_looked_through_in_turns() -> None:
    """49,000 topics and the configs of as many resources took 51 ms in one turn."""
    configs = {("group", f"g-{number}"): {} for number in range(PARTS)}
    image = SimpleNamespace(configs=configs, topics={}, brokers={})
    turns, make = CountedTurns(), request_builders(ApiKey.LIST_CONFIG_RESOURCES, 1)
    broker: BrokerContext = broker_with(turns, image=lambda: image)
    message = make.ListConfigResourcesRequest(resource_types=())
    asked = list_config_resources.handle(broker, context(ApiKey.LIST_CONFIG_RESOURCES, 1), message)
    answer = await completed(broker.env, asked)
    assert [each.resource_name for each in answer.config_resources] == sorted(name for _, name in configs)
    assert turns.taken >= 3 * PARTS // PARTS_AT_ONCE - 3
