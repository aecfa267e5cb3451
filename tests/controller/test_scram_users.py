"""AlterUserScramCredentials: each user wholly or not at all (KIP-554)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from raftlog.base.errors import (
    DuplicateResource,
    PolicyViolation,
    ResourceNotFound,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
)
from raftlog.metadata.controller_api import AlterScramCredentials, ScramAlteration
from raftlog.security.scram import MAX_ITERATIONS, MIN_ITERATIONS, ScramCredential
from tests.controller.controller_cluster import ControllerCluster

KEPT = ScramCredential(b"salt", MIN_ITERATIONS, b"stored key", b"server key")
STRONG, WEAK = "SCRAM-SHA-512", "SCRAM-SHA-256"


def alter(controllers: ControllerCluster, *alterations: ScramAlteration) -> list[int]:
    return [each.error_code for each in controllers.ask(AlterScramCredentials(alterations)).results]


def test_credentials_are_set_replaced_and_removed(controllers: ControllerCluster) -> None:
    """Results are by user; the log names users and mechanisms, and no secret."""
    with capture_logs() as logs:
        assert alter(
            controllers,
            ScramAlteration("al", WEAK, KEPT),
            ScramAlteration("bob", WEAK, KEPT),
            ScramAlteration("al", STRONG, KEPT),
        ) == [0, 0]
    assert set(controllers.image.scram) == {("al", WEAK), ("al", STRONG), ("bob", WEAK)}
    assert [(line["event"], line["user"]) for line in logs] == [
        ("scram_credential_set", "al"),
        ("scram_credential_set", "al"),
        ("scram_credential_set", "bob"),
    ]
    assert "key" not in repr(logs)
    newer = replace(KEPT, iterations=MAX_ITERATIONS)
    assert alter(controllers, ScramAlteration("al", WEAK, newer), ScramAlteration("bob", WEAK, None)) == [
        0,
        0,
    ]
    assert controllers.image.scram == {("al", WEAK): newer, ("al", STRONG): KEPT}


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (ScramAlteration("al", WEAK, replace(KEPT, iterations=MIN_ITERATIONS - 1)), UnacceptableCredential),
        (ScramAlteration("al", WEAK, replace(KEPT, iterations=MAX_ITERATIONS + 1)), UnacceptableCredential),
        (ScramAlteration("al", WEAK, replace(KEPT, salt=b"")), UnacceptableCredential),
        (ScramAlteration("al", WEAK, replace(KEPT, salt=b"s" * 65)), UnacceptableCredential),
        (ScramAlteration("al", WEAK, replace(KEPT, stored_key=b"")), UnacceptableCredential),
        (ScramAlteration("al", "PLAIN", KEPT), UnsupportedSaslMechanism),
        (ScramAlteration("al", WEAK, None), ResourceNotFound),
        (ScramAlteration("al", STRONG, KEPT), DuplicateResource),
    ],
)
def test_a_user_is_altered_wholly_or_not_at_all(
    controllers: ControllerCluster, wrong: ScramAlteration, code: type[Exception]
) -> None:
    """The other users of the request are altered."""
    right = ScramAlteration("al", STRONG, KEPT), ScramAlteration("bob", STRONG, KEPT)
    assert alter(controllers, *right, wrong) == [code.code, 0]  # type: ignore[attr-defined]
    assert set(controllers.image.scram) == {("bob", STRONG)}


@pytest.mark.parametrize("name", ["", "x" * 250])
def test_a_user_has_a_name_of_some_length(controllers: ControllerCluster, name: str) -> None:
    """It is as long as Kafka's names of resources at most."""
    assert alter(controllers, ScramAlteration(name, WEAK, KEPT)) == [UnacceptableCredential.code]


def test_credentials_are_bounded_and_can_always_be_replaced() -> None:
    """`raftlog.security.max`; a password can be changed at the limit."""
    controllers = ControllerCluster(raftlog_security_max=1)
    controllers.start(1)
    assert alter(controllers, ScramAlteration("al", WEAK, KEPT), ScramAlteration("bob", WEAK, KEPT)) == [
        0,
        PolicyViolation.code,
    ]
    assert alter(controllers, ScramAlteration("al", WEAK, replace(KEPT, salt=b"other"))) == [0]
    assert alter(controllers, ScramAlteration("al", WEAK, None)) == [0]
    assert alter(controllers, ScramAlteration("bob", WEAK, KEPT)) == [0]
