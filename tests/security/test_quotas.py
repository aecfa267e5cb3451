"""raftlog.security.quotas: which of eight levels holds, and how long one waits that used too much (KIP-13, KIP-599)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.security.quotas import (
    CLIENT_ID,
    CONNECTION,
    FETCH,
    IP,
    PRODUCE,
    USER,
    Entity,
    Quota,
    Rates,
    TokenBucket,
    WindowedRate,
    Windows,
    quota_for,
    quota_for_address,
)

NAMES = ("al", "bob", "")
names = st.sampled_from([*NAMES, None])
entities = st.one_of(
    st.builds(lambda user: ((USER, user),), names),
    st.builds(lambda client: ((CLIENT_ID, client),), names),
    st.builds(lambda client, user: ((CLIENT_ID, client), (USER, user)), names, names),
    st.builds(lambda host: ((IP, host),), st.sampled_from(["10.0.0.1", None])),
)
quotas = st.dictionaries(
    entities, st.dictionaries(st.sampled_from([PRODUCE, FETCH, CONNECTION]), st.floats(1, 9), min_size=1)
)


def naive_quota(
    quotas: dict[Entity, dict[str, float]], key: str, user: str, client_id: str
) -> tuple[float, frozenset[str]] | None:
    """Kafka's table, from the top: the entities as paths, and which names the sharers of the quota have in common."""
    paths = {
        "/".join(
            f"{kind}={'<default>' if name is None else 'name:' + name}" for kind, name in sorted(entity)
        ): values
        for entity, values in quotas.items()
    }
    user_is, client_is = f"user=name:{user}", f"client-id=name:{client_id}"
    any_user, any_client = "user=<default>", "client-id=<default>"
    both, of_user, of_client = frozenset({"user", "client"}), frozenset({"user"}), frozenset({"client"})
    table = (
        (f"{client_is}/{user_is}", both),
        (f"{any_client}/{user_is}", both),
        (user_is, of_user),
        (f"{client_is}/{any_user}", both),
        (f"{any_client}/{any_user}", both),
        (any_user, of_user),
        (client_is, of_client),
        (any_client, of_client),
    )
    for path, shared in table:
        if key in paths.get(path, {}):
            return paths[path][key], shared
    return None


@given(quotas, st.sampled_from([PRODUCE, FETCH]), st.sampled_from(NAMES), st.sampled_from(NAMES))
def test_the_most_special_of_eight_levels_holds(
    quotas: dict[Entity, dict[str, float]], key: str, user: str, client_id: str
) -> None:
    """As in Kafka's documentation: users before client ids, names before defaults."""
    found, wanted = quota_for(quotas, key, user, client_id), naive_quota(quotas, key, user, client_id)
    if wanted is None:
        assert found is None
        return
    limit, shared = wanted
    assert found == Quota(
        limit, (user if "user" in shared else None, client_id if "client" in shared else None)
    )


@given(quotas, st.sampled_from(["10.0.0.1", "10.0.0.2"]))
def test_an_address_has_its_own_quota_or_the_default(
    quotas: dict[Entity, dict[str, float]], host: str
) -> None:
    """KIP-612: users and client ids do not matter."""
    own, default = quotas.get(((IP, host),), {}), quotas.get(((IP, None),), {})
    assert quota_for_address(quotas, host) == own.get(CONNECTION, default.get(CONNECTION))


def naive_throttle_s(uses: list[tuple[float, float]], limit: float, now: float, span: Windows) -> float:
    """The formula of KIP-13 over a list of everything that was ever used."""
    number = math.floor(now / span.seconds)
    recent = [(at, amount) for at, amount in uses if math.floor(at / span.seconds) > number - span.most]
    if not recent:
        return 0.0
    elapsed = now - math.floor(recent[0][0] / span.seconds) * span.seconds
    full = math.floor(elapsed / span.seconds)
    elapsed += max(0, span.most - 1 - full) * span.seconds
    elapsed = max(elapsed, span.seconds)
    rate = sum(amount for _, amount in recent) / elapsed
    return max(0.0, (rate - limit) / limit * elapsed)


@given(
    st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 1_000)), max_size=30),
    st.integers(1, 500),
    st.integers(0, 20_000),
    st.sampled_from([Windows(), Windows(1, 1.0), Windows(3, 2.0)]),
)
def test_a_rate_throttles_as_kafkas_formula_says(
    steps: list[tuple[int, int]], limit: int, later_ms: int, span: Windows
) -> None:
    """Against a model with full memory; each step is milliseconds and an amount."""
    rate, uses, now = WindowedRate(span), [], 100.0
    for step_ms, amount in steps:
        now += step_ms / 1000
        rate.use(amount, now)
        uses.append((now, float(amount)))
        assert rate.throttle_s(limit, now) == pytest.approx(
            naive_throttle_s(uses, limit, now, span), abs=1e-6
        )
    now += later_ms / 1000
    assert rate.throttle_s(limit, now) == pytest.approx(naive_throttle_s(uses, limit, now, span), abs=1e-6)
    assert rate.is_idle(now + span.most * span.seconds)


def test_a_burst_of_ten_seconds_passes_and_more_waits() -> None:
    """Eleven windows of which ten count as full."""
    rate = WindowedRate(Windows())
    rate.use(10_000, 50.0)
    assert rate.throttle_s(1_000, 50.0) == 0
    rate.use(2_000, 50.0)
    assert rate.throttle_s(1_000, 50.0) == 2
    assert rate.throttle_s(1_000, 52.0) == 2, (
        "until ten windows are over, the time since the first counts as ten"
    )
    assert rate.throttle_s(1_000, 60.0, more=500) == 2.5
    assert rate.forgotten_in_s(60.0) == 1
    assert rate.throttle_s(1_000, 61.0) == 0


def test_a_bucket_saves_up_for_all_windows_and_may_be_overdrawn_once() -> None:
    """KIP-599: it refills while idle, to the brim and no further."""
    bucket = TokenBucket(Windows(), 2.0, 100.0)
    assert (bucket.tokens, bucket.wait_s(2.0, 100.0)) == (22.0, 0.0)
    bucket.use(30)
    assert bucket.wait_s(2.0, 100.0) == 4.0
    assert bucket.wait_s(2.0, 103.0) == 1.0
    assert bucket.wait_s(2.0, 1_000.0) == 0.0
    assert bucket.tokens == 22.0


def test_a_flood_of_new_names_looks_at_few_rates_for_each_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full table drops a tenth at a time, so that a new name costs ten looks and no walk over all names."""
    looks = 0
    is_idle = WindowedRate.is_idle

    def counted(rate: WindowedRate, now: float) -> bool:
        nonlocal looks
        looks += 1
        return is_idle(rate, now)

    monkeypatch.setattr(WindowedRate, "is_idle", counted)
    rates: Rates[int] = Rates(Windows(), most=100)
    for name in range(1_000):
        rate, _ = rates.add(name, 10.0)
        rate.use(1, 10.0)
        assert len(rates) <= 100
    assert looks <= 10 * 1_000


def test_idle_rates_are_dropped_before_rates_in_use() -> None:
    """A client that used its quota of late is still throttled after a flood of unused names."""
    rates: Rates[str] = Rates(Windows(), most=10)
    used, _ = rates.add("greedy", 10.0)
    used.use(1_000, 10.0)
    for number in range(100):
        rates.add(f"c{number}", 10.0)
    assert rates.find("greedy") is used
    assert len(rates) <= 10
