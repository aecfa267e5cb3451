"""AlterUserScramCredentials 0: set and remove passwords of users, each user wholly or not at all (KIP-554)."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from raftlog.base.errors import InvalidRequest, KafkaError
from raftlog.broker.api import AT_ONCE, Api, Change
from raftlog.broker.audited_changes import named
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.controller_requests import ask, truncate_message, wait_for_image
from raftlog.metadata.controller_api import AlterScramCredentials, PartResult, PartResults, ScramAlteration
from raftlog.metadata.image import MetadataImage
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import ALTER_CLUSTER
from raftlog.security.scram import NUMBERS, ScramCredential, from_salted

API_KEY: Final = ApiKey.ALTER_USER_SCRAM_CREDENTIALS

MAX_ALTERATIONS: Final = 500
"""Credentials in one request, some 10 µs each."""

_NAMES: Final = {number: name for name, number in NUMBERS.items()}


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Have the controller change credentials, and wait until this broker applies them."""
    if len(message.deletions) + len(message.upsertions) > MAX_ALTERATIONS:
        raise InvalidRequest(f"deletions and upsertions: at most {MAX_ALTERATIONS} in total")
    alterations = (
        *(ScramAlteration(each.name, _NAMES.get(each.mechanism, ""), None) for each in message.deletions),
        *map(_upsertion, message.upsertions),
    )
    users = tuple(dict.fromkeys(each.user for each in alterations))
    reply = await ask(broker, AlterScramCredentials(alterations), PartResults)
    results = dict(zip(users, reply.results, strict=True))
    done = [each for each in alterations if not results[each.user].error_code]
    await wait_for_image(broker, partial(_shows, done))
    return _response(request, results)


def error_response(request: RequestContext, message: Any, error: KafkaError) -> Any:
    """Return the same error for each user."""
    failed = PartResult(error.code, error.message)
    return _response(request, {each.name: failed for each in (*message.deletions, *message.upsertions)})


def _upsertion(asked: Any) -> ScramAlteration:
    mechanism = _NAMES.get(asked.mechanism, "")
    if not mechanism:
        return ScramAlteration(asked.name, "", None)
    salt, salted = bytes(asked.salt), bytes(asked.salted_password)
    if not salted:
        without_keys = ScramCredential(salt, asked.iterations, b"", b"")  # the controller refuses it
        return ScramAlteration(asked.name, mechanism, without_keys)
    return ScramAlteration(asked.name, mechanism, from_salted(mechanism, salted, salt, asked.iterations))


def _response(request: RequestContext, results: dict[str, PartResult]) -> Any:
    make = response_builders(API_KEY, request.api_version)
    return make.AlterUserScramCredentialsResponse(
        throttle_time=0,
        results=tuple(
            make.AlterUserScramCredentialsResult(
                user=user, error_code=each.error_code, error_message=truncate_message(each.error_message)
            )
            for user, each in results.items()
        ),
    )


def _shows(done: list[ScramAlteration], image: MetadataImage) -> bool:
    return all(image.scram.get((each.user, each.mechanism)) == each.credential for each in done)


API: Final = Api(
    key=API_KEY,
    handle=handle,
    error_response=error_response,
    needs=ALTER_CLUSTER,
    max_parts=AT_ONCE,
    audit=Change(lambda _, response: named(response.results, "user")),
    controllers=True,
)
