"""Raw requests to the coordinator of a group or a transactional id, in any version, and the codes of the responses."""

from __future__ import annotations

import dataclasses
from typing import Any

from raftlog.protocol.apis import ApiKey
from raftlog.protocol.codec import RequestHeader, decode_response, encode_request
from raftlog.protocol.message_builders import request_builders
from raftlog.protocol.schema import message_type
from raftlog.testing.cluster import Cluster
from tests.clients.raw_client import CORRELATION_ID, RawClient
from tests.kit.waits import until

GROUP, TRANSACTION = 0, 1
MOVING = {14, 15, 16, 51}
"""Codes of a coordinator that is not there yet, and of a transaction before that is being ended: ask again."""


def build(api: ApiKey, version: int, **fields: Any) -> Any:
    """Return a request; what is not given is the schema's default."""
    return getattr(request_builders(api, version), message_type(api, version, "request").__name__)(**fields)


def codes_of(answer: Any) -> set[int]:
    """Return all error codes in an answer that are not 0."""
    if isinstance(answer, tuple):
        return set().union(*map(codes_of, answer))
    if not dataclasses.is_dataclass(answer):
        return set()
    values = {field.name: getattr(answer, field.name) for field in dataclasses.fields(answer)}
    own = {int(values["error_code"])} if values.get("error_code") else set()
    return own.union(*map(codes_of, values.values()))


def ask(address: str, api: ApiKey, version: int, **fields: Any) -> Any:
    header = RequestHeader(api, version, CORRELATION_ID, None)
    with RawClient(address) as wire:
        wire.send(encode_request(header, build(api, version, **fields)))
        return decode_response(api, version, memoryview(wire.receive()))[1]


class CoordinatorClient:
    """Sends requests to the current coordinator of a group or a transactional id."""

    def __init__(self, cluster: Cluster) -> None:
        self._any = cluster.nodes[1].address

    def ask(self, name: str, api: ApiKey, version: int, *, kind: int = GROUP, **fields: Any) -> Any:
        """Return the coordinator's response, as soon as there is a coordinator."""

        def question() -> Any:
            found = ask(self._any, ApiKey.FIND_COORDINATOR, 2, key=name, key_type=kind)
            return found if codes_of(found) else ask(f"{found.host}:{found.port}", api, version, **fields)

        answers: list[Any] = []

        def settled() -> bool:
            answers[:] = [question()]
            return not codes_of(answers[0]) & MOVING

        until(settled, f"the coordinator of {name} answers", seen=lambda: [*map(codes_of, answers)])
        return answers[0]
