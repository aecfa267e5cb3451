"""The SCRAM users: list, set passwords, remove. No response contains a credential."""

from __future__ import annotations

import asyncio
import secrets
from typing import Annotated, Final

import msgspec

from raftlog.admin.errors import check, not_found
from raftlog.admin.route import Call, Route
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.client_versions import builders_for
from raftlog.security import scram
from raftlog.security.acls import ALTER_CLUSTER, DESCRIBE_CLUSTER


class Credential(msgspec.Struct):
    """A credential of a user, without its secrets."""

    mechanism: str
    iterations: int


class User(msgspec.Struct):
    """A user, as ACLs name it: `principal`."""

    name: str
    principal: str
    credentials: list[Credential]


class Users(msgspec.Struct):
    data: list[User]


class NewPassword(msgspec.Struct, forbid_unknown_fields=True):
    """The password, and how often it is hashed."""

    password: Annotated[str, msgspec.Meta(min_length=1, max_length=1_024)]
    iterations: Annotated[int, msgspec.Meta(ge=scram.MIN_ITERATIONS, le=scram.MAX_ITERATIONS)] = (
        scram.MIN_ITERATIONS
    )


async def list_users(call: Call) -> Users:
    """Return users by name. Users of PLAIN are in the settings of listeners, and not among them."""
    found: dict[str, list[Credential]] = {}
    for (name, mechanism), each in sorted(call.node.image().scram.items()):
        found.setdefault(name, []).append(Credential(mechanism, each.iterations))
    return Users([User(name, f"User:{name}", credentials) for name, credentials in found.items()])


async def put_credential(call: Call) -> None:
    """Set a credential, also for a new user. Open sessions go on."""
    name, mechanism = call.path["user_name"], _mechanism(call)
    wanted: NewPassword = call.body
    call.audit.update(user=name, mechanism=mechanism, iterations=wanted.iterations)
    salt = secrets.token_bytes(scram.SALT_BYTES)
    salted = await asyncio.to_thread(scram.salted, mechanism, wanted.password, salt, wanted.iterations)
    make = builders_for(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
    upsertion = make.ScramCredentialUpsertion(
        name=name,
        mechanism=scram.NUMBERS[mechanism],
        iterations=wanted.iterations,
        salt=salt,
        salted_password=salted,
    )
    await _alter(call, make.AlterUserScramCredentialsRequest(deletions=(), upsertions=(upsertion,)))


async def delete_credential(call: Call) -> None:
    """Delete a credential: the user can no longer log in with it."""
    name, mechanism = call.path["user_name"], _mechanism(call)
    call.audit.update(user=name, mechanism=mechanism)
    make = builders_for(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
    deletion = make.ScramCredentialDeletion(name=name, mechanism=scram.NUMBERS[mechanism])
    await _alter(call, make.AlterUserScramCredentialsRequest(deletions=(deletion,), upsertions=()))


def _mechanism(call: Call) -> str:
    found: str = call.path["mechanism"]
    if found not in scram.NUMBERS:
        raise not_found(f"mechanism {found[:40]}")
    return found


async def _alter(call: Call, request: object) -> None:
    response = await call.asker.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request)
    (result,) = response.results
    check(result.error_code, result.error_message)


ONE: Final = "/v1/users/{user_name}/credentials/{mechanism}"
ROUTES: Final = (
    Route("GET", "/v1/users", list_users, "List users of SCRAM", rights=DESCRIBE_CLUSTER),
    Route(
        "PUT",
        ONE,
        put_credential,
        "Give a user a password",
        body=NewPassword,
        status=204,
        rights=ALTER_CLUSTER,
    ),
    Route("DELETE", ONE, delete_credential, "Take a user's password away", status=204, rights=ALTER_CLUSTER),
)
