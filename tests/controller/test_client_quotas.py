"""Client quotas in the controller: set, removed, bounded, logged; and the counting of mutations (KIP-599)."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from raftlog.base.errors import InvalidRequest, PolicyViolation
from raftlog.controller import mutation_quotas
from raftlog.controller.mutation_quotas import MutationQuotas
from raftlog.metadata.broker_requests import ChargeMutations, MutationsCharged
from raftlog.metadata.controller_api import AlterClientQuotas, QuotaAlteration
from raftlog.security.quotas import CLIENT_ID, MUTATION, PRODUCE, USER, Entity, Windows
from tests.controller.controller_cluster import ControllerCluster

AL: Entity = ((USER, "al"),)
ANYONE: Entity = ((CLIENT_ID, None), (USER, None))
LIMITED = {AL: {MUTATION: 2.0}}


def alter(controllers: ControllerCluster, entity: Entity, *values: tuple[str, float | None]) -> int:
    (result,) = controllers.ask(AlterClientQuotas((QuotaAlteration(entity, values),))).results
    return result.error_code  # type: ignore[no-any-return]


def test_a_change_is_logged_once_and_nothing_else_is_written() -> None:
    """A quota that is set to what it is makes no record."""
    controllers = ControllerCluster()
    controllers.start(1)
    with capture_logs() as logs:
        assert alter(controllers, ANYONE, (PRODUCE, 5.0)) == 0
        offset = controllers.image.offset
        assert alter(controllers, ANYONE, (PRODUCE, 5.0), (MUTATION, None)) == 0
    assert controllers.image.offset == offset
    assert [(line["event"], line["entity"], line["value"]) for line in logs] == [
        ("client_quota_changed", "user=<default>,client-id=<default>", 5.0)
    ]


def test_quotas_are_bounded_and_can_always_be_removed() -> None:
    """`raftlog.security.max` counts them beside rules and credentials."""
    controllers = ControllerCluster(raftlog_security_max=1)
    controllers.start(1)
    assert alter(controllers, AL, (PRODUCE, 1.0)) == 0
    assert alter(controllers, ANYONE, (PRODUCE, 1.0)) == PolicyViolation.code
    assert alter(controllers, AL, (PRODUCE, 2.0)) == 0, "no further one"
    assert alter(controllers, AL, (PRODUCE, None)) == 0
    assert alter(controllers, ANYONE, (PRODUCE, 1.0)) == 0


@pytest.mark.parametrize("twice", ["entity", "key"])
def test_nothing_is_named_twice(twice: str) -> None:
    """Which of the two counts would be a guess."""
    controllers = ControllerCluster()
    controllers.start(1)
    if twice == "key":
        assert alter(controllers, AL, (PRODUCE, 1.0), (PRODUCE, 2.0)) == InvalidRequest.code
        return
    same = QuotaAlteration(AL, ((PRODUCE, 1.0),))
    results = controllers.ask(AlterClientQuotas((same, same))).results
    assert [each.error_code for each in results] == [InvalidRequest.code] * 2
    assert controllers.image.quotas == {}


def test_bytes_per_second_have_kafkas_limit() -> None:
    """2**63, which is a double; the next larger value is refused."""
    controllers = ControllerCluster()
    controllers.start(1)
    assert alter(controllers, AL, (PRODUCE, 2.0**63)) == 0
    assert alter(controllers, AL, (PRODUCE, 2.0**64)) == InvalidRequest.code


def charge(quotas: MutationQuotas, now: float, *sizes: int, strict: bool = True) -> MutationsCharged:
    return quotas.charge(LIMITED, ChargeMutations("al", "app", sizes, strict), now)


def test_a_strict_client_is_refused_what_nothing_is_left_for() -> None:
    """The last request may overdraw; parts without partitions always pass."""
    quotas = MutationQuotas(Windows(2, 1.0))
    assert charge(quotas, 10, 3) == MutationsCharged((True,)), "four saved up"
    assert charge(quotas, 10, 5, 1, 0) == MutationsCharged((True, False, True), 2_000)
    assert charge(quotas, 11, 1) == MutationsCharged((False,), 1_000)
    assert charge(quotas, 12, 1) == MutationsCharged((True,))


def test_an_old_client_is_never_refused() -> None:
    """It hears how long to wait, and its broker does not read it before."""
    quotas = MutationQuotas(Windows(2, 1.0))
    assert charge(quotas, 10, 3, strict=False) == MutationsCharged((True,), 0)
    assert charge(quotas, 10, 3, 4, strict=False) == MutationsCharged((True, True), 3_000)


def test_clients_without_a_quota_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the counted clients do not grow without bound."""
    monkeypatch.setattr(mutation_quotas, "MAX_KEPT", 3)
    quotas = MutationQuotas(Windows())
    assert quotas.charge({}, ChargeMutations("al", "app", (1_000,), True), 1.0) == MutationsCharged((True,))
    assert not quotas._buckets
    each_client = {ANYONE: {MUTATION: 1.0}}
    for number in range(9):
        quotas.charge(each_client, ChargeMutations("al", f"c{number}", (1,), True), 1.0)
    assert len(quotas._buckets) == 3


def test_the_active_controller_counts_by_the_quotas_of_its_tail() -> None:
    """A new controller begins with zero usage, as Kafka's."""
    controllers = ControllerCluster()
    controllers.start(1)
    assert alter(controllers, AL, (MUTATION, 1.0)) == 0
    asked = ChargeMutations("al", "app", (12, 1), True)
    assert controllers.ask(asked).allowed == (True, False)
