"""The APIs about rules and credentials: KIP-140, KIP-290, KIP-554. The controller's own functions decide."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from msgspec.structs import replace

from raftlog.base.config import load_config
from raftlog.base.errors import (
    DuplicateResource,
    InvalidRequest,
    NotController,
    ResourceNotFound,
    SecurityDisabled,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
)
from raftlog.controller.acls import decide_create_acls, decide_delete_acls
from raftlog.controller.scram_users import decide_alter_scram_credentials
from raftlog.metadata.controller_api import AlterScramCredentials, CreateAcls, DeleteAcls
from raftlog.metadata.record_replay import apply_records
from raftlog.protocol.message_builders import request_builders
from raftlog.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from raftlog.security.authorizer import Authorizer
from raftlog.security.scram import credential
from tests.broker.handlers.one_broker import HandlerSetup, versions

DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS = 29, 30, 31
DESCRIBE_SCRAM, ALTER_SCRAM = 50, 51
SHA_256, SHA_512 = 1, 2
ANY = 1

READ = Acl(
    ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:al", "*", Operation.READ, Permission.ALLOW
)
WRITE = replace(READ, operation=Operation.WRITE)
PREFIXED = replace(READ, pattern_type=PatternType.PREFIXED, resource_name="ord")


class SecureSetup(HandlerSetup):
    """A broker with an authorizer, and a controller that decides at once."""

    def __init__(self, *rules: Acl) -> None:
        super().__init__()
        self.broker.authorizer = Authorizer()
        self.image = replace(self.image, acls=dict.fromkeys(rules, True))
        config = load_config()
        self.answers |= {
            CreateAcls: lambda asked: self._decide(decide_create_acls(self.image, asked, config)),
            DeleteAcls: lambda asked: self._decide(decide_delete_acls(self.image, asked)),
            AlterScramCredentials: lambda asked: self._decide(
                decide_alter_scram_credentials(self.image, asked, config)
            ),
        }

    def _decide(self, decision: Any) -> Any:
        self.image = apply_records(self.image, decision.records)
        return decision.reply


def creation(acl: Acl, version: int = 3, **changes: Any) -> Any:
    fields = {
        "resource_type": int(acl.resource_type),
        "resource_name": acl.resource_name,
        "resource_pattern_type": int(acl.pattern_type),
        "principal": acl.principal,
        "host": acl.host,
        "operation": int(acl.operation),
        "permission_type": int(acl.permission),
    }
    return request_builders(CREATE_ACLS, version).AclCreation(**(fields | changes))


def filter_fields(**changes: Any) -> dict[str, Any]:
    return {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    } | changes


def deletion(**changes: Any) -> Any:
    return request_builders(DELETE_ACLS, 3).DeleteAclsFilter(**filter_fields(**changes))


@pytest.mark.parametrize("version", versions(CREATE_ACLS))
async def test_rules_are_created_each_on_its_own(version: int) -> None:
    """A rule that is wrong, by number or by field, hinders no other; results come in the order asked for."""
    setup = SecureSetup()
    answer = await setup.call(
        CREATE_ACLS,
        version,
        creations=(
            creation(READ, version, operation=99),
            creation(READ, version),
            creation(WRITE, version, principal="al"),
            creation(WRITE, version),
        ),
    )
    codes = [each.error_code for each in answer.results]
    assert codes == [InvalidRequest.code, 0, InvalidRequest.code, 0]
    assert "not 99" in answer.results[0].error_message
    assert set(setup.image.acls) == {READ, WRITE}


async def test_a_controller_that_is_away_is_an_error_for_each_acl() -> None:
    """No ACL is created, and the client asks again."""
    setup = SecureSetup()
    setup.answers[CreateAcls] = NotController("no leader")
    answer = await setup.call(CREATE_ACLS, 3, creations=(creation(READ), creation(WRITE)))
    assert {each.error_code for each in answer.results} == {NotController.code}


@pytest.mark.parametrize("version", versions(DESCRIBE_ACLS))
async def test_rules_are_described_by_resource(version: int) -> None:
    """Rules about one resource stand together."""
    answer = await SecureSetup(READ, PREFIXED, WRITE).call(DESCRIBE_ACLS, version, **filter_fields())
    assert answer.error_code == 0
    assert [(each.resource_name, len(each.acls)) for each in answer.resources] == [("ord", 1), ("orders", 2)]
    found = {(acl.principal, acl.operation) for acl in answer.resources[1].acls}
    assert found == {("User:al", Operation.READ), ("User:al", Operation.WRITE)}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"resource_name_filter": "orders"}, {READ, WRITE}),
        ({"resource_name_filter": "orders", "pattern_type_filter": 2}, {READ, WRITE, PREFIXED}),
        ({"pattern_type_filter": 4}, {PREFIXED}),
        ({"operation": int(Operation.WRITE)}, {WRITE}),
        ({"principal_filter": "User:bob"}, set()),
        ({"host_filter": "*", "permission_type": 3}, {READ, WRITE, PREFIXED}),
        ({"resource_type_filter": 3}, set()),
    ],
)
async def test_a_filter_deletes_what_it_would_describe(asked: dict[str, Any], expected: set[Acl]) -> None:
    """One meaning of filters for both APIs. Source: KIP-290."""
    setup = SecureSetup(READ, WRITE, PREFIXED)
    described = await setup.call(DESCRIBE_ACLS, 3, **filter_fields(**asked))
    assert sum(len(each.acls) for each in described.resources) == len(expected)
    answer = await setup.call(DELETE_ACLS, 3, filters=(deletion(**asked),))
    (result,) = answer.filter_results
    assert {(each.resource_name, each.operation) for each in result.matching_acls} == {
        (each.resource_name, each.operation) for each in expected
    }
    assert set(setup.image.acls) == {READ, WRITE, PREFIXED} - expected


async def test_filters_are_taken_one_by_one() -> None:
    """A filter with an UNKNOWN type is refused alone; the others delete."""
    setup = SecureSetup(READ, WRITE)
    wrong, right = deletion(operation=0), deletion(operation=int(Operation.READ))
    answer = await setup.call(DELETE_ACLS, 3, filters=(wrong, right, right))
    codes = [(each.error_code, len(each.matching_acls)) for each in answer.filter_results]
    assert codes == [(InvalidRequest.code, 0), (0, 1), (0, 0)]
    assert set(setup.image.acls) == {WRITE}


async def test_without_an_authorizer_there_are_no_rules_to_change() -> None:
    """SECURITY_DISABLED: operators would rely on an ACL that is not enforced. Source: KIP-140."""
    setup = SecureSetup()
    setup.broker.authorizer = None
    with pytest.raises(SecurityDisabled):
        await setup.call(CREATE_ACLS, 3, creations=(creation(READ),))
    with pytest.raises(SecurityDisabled):
        await setup.call(DESCRIBE_ACLS, 3, **filter_fields())
    with pytest.raises(SecurityDisabled):
        await setup.call(DELETE_ACLS, 3, filters=(deletion(),))


def upsertion(
    name: str, mechanism: int = SHA_256, iterations: int = 4096, salted_password: bytes | None = None
) -> Any:
    """The client salts the password: `hi` of RFC 5802."""
    digest = "sha512" if mechanism == SHA_512 else "sha256"
    if salted_password is None:
        salted_password = hashlib.pbkdf2_hmac(digest, b"secret", b"salt", iterations)
    return request_builders(ALTER_SCRAM, 0).ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=b"salt",
        salted_password=salted_password,
    )


def removal(name: str, mechanism: int = SHA_256) -> Any:
    return request_builders(ALTER_SCRAM, 0).ScramCredentialDeletion(name=name, mechanism=mechanism)


async def alter(setup: SecureSetup, *, deletions: Any = (), upsertions: Any = ()) -> dict[str, int]:
    answer = await setup.call(ALTER_SCRAM, 0, deletions=deletions, upsertions=upsertions)
    return {each.user: each.error_code for each in answer.results}


async def test_a_credential_is_what_the_password_would_give() -> None:
    """A client sends the salted password; what is kept is what a login with the password is checked by."""
    setup = SecureSetup()
    assert await alter(setup, upsertions=(upsertion("al"), upsertion("al", SHA_512))) == {"al": 0}
    assert setup.image.scram == {
        ("al", "SCRAM-SHA-256"): credential("SCRAM-SHA-256", "secret", b"salt", 4096),
        ("al", "SCRAM-SHA-512"): credential("SCRAM-SHA-512", "secret", b"salt", 4096),
    }


async def test_each_user_is_altered_or_refused() -> None:
    """Unknown mechanisms, few iterations, what is not there, and what is named twice. Source: KIP-554."""
    setup = SecureSetup()
    await alter(setup, upsertions=(upsertion("al"), upsertion("bob")))
    codes = await alter(
        setup,
        deletions=(removal("al"), removal("nobody"), removal("cy", 77), removal("bob")),
        upsertions=(
            upsertion("dan", 0),
            upsertion("eve", iterations=100),
            upsertion("fay", salted_password=b""),
            upsertion("bob"),
        ),
    )
    assert codes == {
        "al": 0,
        "nobody": ResourceNotFound.code,
        "cy": UnsupportedSaslMechanism.code,
        "bob": DuplicateResource.code,
        "dan": UnsupportedSaslMechanism.code,
        "eve": UnacceptableCredential.code,
        "fay": UnacceptableCredential.code,
    }
    assert set(setup.image.scram) == {("bob", "SCRAM-SHA-256")}


async def test_users_are_described_without_anything_secret() -> None:
    """Mechanisms and iterations of all users, or of the named users, each once."""
    setup = SecureSetup()
    await alter(setup, upsertions=(upsertion("al"), upsertion("al", SHA_512, 8192), upsertion("bob")))
    answer = await setup.call(DESCRIBE_SCRAM, 0, users=None)
    found = {
        each.user: [(of.mechanism, of.iterations) for of in each.credential_infos] for each in answer.results
    }
    assert found == {"al": [(SHA_256, 4096), (SHA_512, 8192)], "bob": [(SHA_256, 4096)]}
    kept = setup.image.scram["al", "SCRAM-SHA-256"]
    assert kept.stored_key.hex() not in repr(kept) and repr(kept.salt) not in repr(kept)
    name = request_builders(DESCRIBE_SCRAM, 0).UserName
    answer = await setup.call(
        DESCRIBE_SCRAM, 0, users=(name(name="bob"), name(name="nobody"), name(name="al"), name(name="al"))
    )
    assert {each.user: each.error_code for each in answer.results} == {
        "bob": 0,
        "nobody": ResourceNotFound.code,
        "al": DuplicateResource.code,
    }
