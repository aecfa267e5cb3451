"""A hand-made broker context for handlers: a cluster's image as a value, and a controller that answers by table."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import msgspec
import pytest

from raftlog.base.config import NodeConfig
from raftlog.base.env import Env
from raftlog.base.errors import KafkaError
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.long_work.turns import completed
from raftlog.metadata.controller_api import Reply, Request
from raftlog.metadata.image import BrokerState, Endpoint, MetadataImage, PartitionState, TopicState
from raftlog.protocol import codec
from raftlog.protocol.apis import APIS
from raftlog.protocol.message_builders import request_builders
from raftlog.protocol.schema import message_type
from raftlog.security.acls import ANONYMOUS
from tests.broker.rows import row_of

OWN_ID = 1

Answer = Callable[[Any], Reply] | Reply | Exception


def broker_state(broker_id: int, **changes: Any) -> BrokerState:
    fields = {
        "broker_id": broker_id,
        "broker_epoch": 10 + broker_id,
        "incarnation_id": UUID(int=broker_id),
        "endpoints": (
            Endpoint("PLAINTEXT", f"host{broker_id}", 9092),
            Endpoint("EXTERNAL", f"public{broker_id}", 19092),
        ),
        "rack": f"r{broker_id}",
        "fenced": False,
    }
    return BrokerState(**(fields | changes))


def topic_state(name: str, number: int, *partitions: PartitionState) -> TopicState:
    return TopicState(name, UUID(int=1000 + number), partitions or (PartitionState((1, 2, 3), (1, 2), 1, 4),))


def cluster_image(**changes: Any) -> MetadataImage:
    """Three brokers, the third fenced; topics a (one partition), b (three)."""
    topics = [
        topic_state("a", 1),
        topic_state(
            "b",
            2,
            PartitionState((1, 2), (1, 2), 2, 1),
            PartitionState((2, 3), (3,), -1, 5),
            PartitionState((3, 1), (1,), 1, 7),
        ),
    ]
    image = MetadataImage(
        offset=50,
        controller_epoch=3,
        controller_id=2,
        cluster_id="the-cluster",
        brokers={1: broker_state(1), 2: broker_state(2), 3: broker_state(3, fenced=True)},
        topics={each.name: each for each in topics},
        topic_names={each.topic_id: each.name for each in topics},
    )
    return msgspec.structs.replace(image, **changes)


def with_topics(image: MetadataImage, *topics: TopicState) -> MetadataImage:
    return msgspec.structs.replace(
        image,
        topics={**image.topics, **{each.name: each for each in topics}},
        topic_names={**image.topic_names, **{each.topic_id: each.name for each in topics}},
    )


class HandlerSetup:
    """The surroundings of one broker: `image` is what it sees, `asked` what it asked the controller."""

    def __init__(self, image: MetadataImage | None = None, **config: Any) -> None:
        self.image = cluster_image() if image is None else image
        self.asked: list[Request] = []
        self.answers: dict[type[Any], Answer] = {}
        fields = {"node_id": OWN_ID, **config}
        self.broker = BrokerContext(
            env=Env(offload=_on_the_loop),
            config=NodeConfig(**fields),
            image=lambda: self.image,
            submit=self._submit,
            replicas=SimpleNamespace(),
        )

    def _submit(self, request: Request, *, timeout: float | None = None) -> Awaitable[Reply]:
        assert timeout is not None and timeout > 0
        return self._answer(request)

    async def _answer(self, request: Request) -> Reply:
        self.asked.append(request)
        await asyncio.sleep(0)
        answer = self.answers[type(request)]
        if callable(answer):
            answer = answer(request)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def call(
        self,
        api_key: int,
        version: int,
        *,
        listener: str = "PLAINTEXT",
        to_controller: bool = False,
        principal: str = ANONYMOUS,
        connection: Any = None,
        **fields: Any,
    ) -> Any:
        """Send a request through the real codec and handler, and return the response as a client reads it."""
        make = request_builders(api_key, version)
        message = getattr(make, message_type(api_key, version, "request").__name__)(**fields)
        header = codec.RequestHeader(api_key, version, 77, "test")
        frame = memoryview(codec.encode_request(header, message))[4:]
        found, position = codec.decode_header(frame)
        request = RequestContext(
            *found,
            listener=listener,
            peer_host="10.0.0.9",
            to_controller=to_controller,
            principal=principal,
            connection=connection,
        )
        handle = row_of(api_key).handle
        assert handle is not None
        message = codec.decode_request(api_key, version, frame, position)
        answer = await completed(self.broker.env, handle(self.broker, request, message))
        response = memoryview(codec.encode_response(api_key, version, 77, answer))[4:]
        correlation_id, decoded = codec.decode_response(api_key, version, response)
        assert correlation_id == 77
        return decoded

    async def refused(self, api_key: int, version: int, **fields: Any) -> Any:
        """Send a request that fails as a whole, and return the error response that its row makes."""
        with pytest.raises(KafkaError) as caught:
            await self.call(api_key, version, **fields)
        request = RequestContext(api_key, version, 77, "test", "PLAINTEXT", "10.0.0.9")
        return row_of(api_key).error_response(request, None, caught.value)


def _on_the_loop(call: Callable[[], Any], /) -> asyncio.Future[Any]:
    future = asyncio.get_running_loop().create_future()
    try:
        future.set_result(call())
    except Exception as error:
        future.set_exception(error)
    return future


def versions(api_key: int) -> range:
    return range(APIS[api_key].min_version, APIS[api_key].max_version + 1)
