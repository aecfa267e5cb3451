"""The brokers' wall clocks at the active controller: compared by their lead over its loop, among unfenced brokers."""

from __future__ import annotations

from random import Random
from statistics import median_low

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.record_ages import MOST_APART_MS, ClockState, OtherClocks
from raftlog.controller.broker_availability import BrokerAvailability
from raftlog.controller.broker_liveness import BrokerClocks
from raftlog.metadata.broker_requests import BrokerHeartbeat, BrokerHeartbeatReply
from raftlog.metadata.controller_api import decode_reply, decode_request, encode
from tests.controller.controller_cluster import WALL_MS, ControllerCluster

DAY_MS = 86_400_000
REPLY = BrokerHeartbeatReply(True, False, False)
BELIEVED, DOUBTED, UNSAID = int(ClockState.BELIEVED), int(ClockState.DOUBTED), int(ClockState.UNSAID)


def availability(*alive: int, leaving: frozenset[int] = frozenset()) -> BrokerAvailability:
    return BrokerAvailability(frozenset(alive), frozenset(), leaving)


def told(clocks: BrokerClocks, broker_id: int, stand: BrokerAvailability) -> OtherClocks | None:
    reply = clocks.added_to(REPLY, broker_id, stand)
    assert isinstance(reply, BrokerHeartbeatReply)
    return reply.clocks


def test_a_broker_hears_of_the_others_and_not_of_itself() -> None:
    """Readings of different moments are compared by the controller's loop; an absent broker does not count."""
    clocks, stand = BrokerClocks(), availability(1, 2, leaving=frozenset({3}))
    clocks.note(1, WALL_MS + 100_000, BELIEVED, 100.0)
    clocks.note(2, WALL_MS + 150_000, BELIEVED, 150.0)
    clocks.note(3, WALL_MS + 160_000 + DAY_MS, DOUBTED, 160.0)
    clocks.note(4, WALL_MS, BELIEVED, 0.0)
    assert told(clocks, 1, stand) == OtherClocks(2, 2, 1, 1, 0, DAY_MS)
    assert told(clocks, 3, stand) == OtherClocks(2, 2, 0, 0, 0, -DAY_MS)
    assert told(clocks, 1, availability(1)) == OtherClocks()
    assert told(clocks, 1, availability(1, 7)) == OtherClocks(alive=1)


def test_clocks_that_keep_their_leads_are_compared_once() -> None:
    """Each heartbeat of an idle cluster asks; a clock that moved is compared again, and so are other brokers."""
    clocks, stand = BrokerClocks(), availability(1, 2)
    for moment in (0, 1, 2):
        for broker_id in (1, 2):
            clocks.note(broker_id, WALL_MS + moment * 1000, BELIEVED, moment)
    first = told(clocks, 1, stand)
    clocks.note(1, WALL_MS + 3000, BELIEVED, 3.0)
    assert told(clocks, 1, stand) is first
    clocks.note(2, WALL_MS + DAY_MS, BELIEVED, 0.0)
    assert told(clocks, 1, stand) == OtherClocks(1, 1, 0, 0, 0, DAY_MS)
    assert told(clocks, 1, availability(1)) == OtherClocks()


def test_a_broker_that_is_fenced_yet_is_compared_and_is_none_of_the_others() -> None:
    """It asks before it takes part."""
    clocks, stand = BrokerClocks(), availability(1, 2)
    for broker_id in (1, 2, 3):
        clocks.note(broker_id, WALL_MS, BELIEVED, 0.0)
    assert told(clocks, 3, stand) == OtherClocks(2, 2, 2, 2)
    assert told(clocks, 1, stand) == OtherClocks(1, 1, 1, 1)


def test_a_broker_of_an_older_release_sends_no_clock_and_gets_none() -> None:
    """The others do not wait for it either."""
    clocks, stand = BrokerClocks(), availability(1, 2, 3)
    clocks.note(1, WALL_MS, BELIEVED, 0.0)
    clocks.note(2, WALL_MS, BELIEVED, 0.0)
    clocks.note(3, 0, UNSAID, 0.0)
    assert told(clocks, 1, stand) == OtherClocks(1, 1, 1, 1)
    assert clocks.added_to(REPLY, 3, stand) is REPLY


def test_releases_with_clocks_in_heartbeats_and_without_understand_each_other() -> None:
    """Heartbeats and replies are maps, of which a reader passes over the fields that it does not know."""

    class OldBeat(msgspec.Struct, frozen=True, tag="heartbeat"):
        broker_id: int
        broker_epoch: int
        metadata_offset: int

    class OldReply(msgspec.Struct, frozen=True, tag="heartbeat_reply"):
        is_caught_up: bool
        is_fenced: bool
        should_shutdown: bool

    old = decode_request(msgspec.msgpack.encode(OldBeat(1, 2, 3)))
    assert old == BrokerHeartbeat(1, 2, 3) and old.clock_state == UNSAID
    new = encode(BrokerHeartbeat(1, 2, 3, wall_clock_ms=WALL_MS, clock_state=BELIEVED))
    assert msgspec.msgpack.decode(new, type=OldBeat) == OldBeat(1, 2, 3)
    assert decode_reply(msgspec.msgpack.encode(OldReply(True, False, False))) == REPLY
    reply = encode(BrokerHeartbeatReply(True, False, False, OtherClocks(2, 2, 2)))
    assert msgspec.msgpack.decode(reply, type=OldReply) == OldReply(True, False, False)


def test_heartbeats_bring_the_other_clocks_and_a_new_controller_begins_without() -> None:
    """Soft state: the next heartbeats fill it."""
    controllers = ControllerCluster(2)
    controllers.start(1, 2)

    def beat(broker_id: int) -> OtherClocks | None:
        epoch = controllers.image.brokers[broker_id].broker_epoch
        beat = BrokerHeartbeat(
            broker_id, epoch, controllers.image.offset, wall_clock_ms=WALL_MS, clock_state=BELIEVED
        )
        reply = controllers.ask(beat)
        assert isinstance(reply, BrokerHeartbeatReply)
        return reply.clocks

    beat(1)
    assert beat(2) == OtherClocks(1, 1, 1, 1)
    controllers.elect(2)
    controllers.commit()
    assert beat(1) == OtherClocks(1)
    assert beat(2) == OtherClocks(1, 1, 1, 1)


@given(seed=st.integers(0, 1 << 32), brokers=st.integers(1, 9))
def test_the_comparison_is_that_of_all_pairs(seed: int, brokers: int) -> None:
    """In any order of heartbeats, with any clocks and any brokers fenced."""
    chance = Random(seed)
    clocks, now = BrokerClocks(), 0.0
    known: dict[int, tuple[int, int]] = {}
    for _ in range(30):
        broker_id, now = chance.randrange(brokers), now + chance.choice((0.0, 1.0))
        lead_ms = chance.choice((0, 5_000, MOST_APART_MS, 2 * MOST_APART_MS, DAY_MS, -DAY_MS))
        state = chance.choice([int(each) for each in ClockState])
        clocks.note(broker_id, WALL_MS + lead_ms + int(now * 1000), state, now)
        known[broker_id] = (lead_ms, state)
        alive = {each for each in range(brokers) if chance.random() < 0.7}
        others = [known.get(each) for each in alive - {broker_id}]
        with_clock = [each for each in others if each and each[1]]
        near = [each for each in with_clock if abs(each[0] - lead_ms) <= MOST_APART_MS]
        expected = OtherClocks(
            sum(1 for each in others if not each or each[1]),
            len(with_clock),
            len(near),
            sum(1 for each in near if each[1] == BELIEVED),
            sum(1 for each in near if each[1] == DOUBTED),
            0,
        )
        found = told(clocks, broker_id, availability(*alive))
        if state == UNSAID:
            assert found is None
            continue
        assert found is not None
        assert msgspec.structs.replace(found, ahead_ms=0) == expected
        if with_clock:
            ahead = sorted(each[0] - lead_ms for each in with_clock)
            assert found.ahead_ms in (median_low(ahead), ahead[len(ahead) // 2])


@pytest.mark.parametrize("state", [BELIEVED, DOUBTED])
def test_a_controller_that_is_no_broker_compares_its_own_clock(state: int) -> None:
    """It removes expired tokens by it."""
    clocks = BrokerClocks()
    clocks.note(1, WALL_MS, state, 0.0)
    expected = OtherClocks(1, 1, 1, int(state == BELIEVED), int(state == DOUBTED))
    assert clocks.compared_with(WALL_MS + 50_000, 50.0, availability(1)) == expected
