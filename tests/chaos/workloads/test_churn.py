"""Topics that come and go are all gone in the end, whatever was given up on the way."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from raftlog.protocol.message_builders import response_builders
from raftlog_chaos.simulator import SimLoop, simulate
from raftlog_chaos.workloads.churn import UNKNOWN_TOPIC, Churn
from raftlog_chaos.workloads.observations import Observations
from raftlog_chaos.workloads.raw_client import DELETE_TOPICS, VERSIONS


class Controller:
    """Stands where a client is asked for: it knows which topics there are."""

    def __init__(self) -> None:
        self.topics: set[str] = set()

    async def ask_any(self, api_key: int, request: Any) -> Any:
        assert api_key == DELETE_TOPICS
        (asked,) = request.topics
        code = 0 if asked.name in self.topics else UNKNOWN_TOPIC
        self.topics.discard(asked.name)
        make = response_builders(api_key, VERSIONS[api_key])
        result = make.DeletableTopicResult(
            name=asked.name, topic_id=None, error_code=code, error_message=None
        )
        return make.DeleteTopicsResponse(responses=(result,))


def test_a_topic_whose_creation_was_given_up_and_comes_late_is_deleted_too() -> None:
    """A broker that stood still carries out what its client has forgotten."""

    async def program(loop: SimLoop) -> None:
        controller = Controller()
        churn = Churn(controller, history=Observations([]), chance=random.Random(1))  # type: ignore[arg-type]
        churn.stopping = True
        running = asyncio.create_task(churn.run())
        await asyncio.sleep(1)
        assert churn.done
        controller.topics.add(churn.names[0])
        await asyncio.sleep(1)
        assert churn.done and not controller.topics
        churn.over = True
        await running

    simulate(program)
