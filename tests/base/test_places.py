"""raftlog.base.places: the newest always gets a place, and the machine that has most pays for it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.places import (
    MAX_NODE_MACHINES,
    NODE_PLACES,
    NodeMachines,
    Places,
    host_of,
    machine_of,
)

MOST = 4


class Room:
    """Places, and the holders that were closed."""

    def __init__(self, **options: object) -> None:
        self.closed: list[str] = []
        self.places: Places[str] = Places(MOST, self.closed.append, **options)  # type: ignore[arg-type]

    def enter(self, *names: str) -> None:
        """Let each in from the address before its dash."""
        for each in names:
            self.places.enter(each, each.partition("-")[0])


def test_the_oldest_of_the_machine_that_has_most_is_closed_for_a_newcomer() -> None:
    """The newcomer may come from any machine."""
    room = Room()
    room.enter("a-1", "b-1", "b-2", "c-1", "d-1", "b-3", "e-1")
    assert room.closed == ["b-1", "b-2", "a-1"]
    assert list(room.places) == ["c-1", "d-1", "b-3", "e-1"]


def test_a_place_that_was_left_is_free() -> None:
    """Leaving twice is fine."""
    room = Room()
    room.enter("a-1", "a-2", "a-3", "a-4")
    room.places.leave("a-2")
    room.places.leave("a-2")
    room.enter("a-5")
    assert room.closed == []


def test_the_owner_may_choose_among_the_holders_of_a_machine() -> None:
    """An HTTP server cuts the quietest rather than the oldest."""
    room = Room(choose=lambda holders: holders[-1])
    room.enter("b-1", "a-1", "a-2", "b-2", "a-3")
    assert room.closed == ["a-2"], "never the newcomer"


def test_the_machine_of_a_node_has_places_of_its_own() -> None:
    """Another machine with fewer connections loses one first."""
    nodes = NodeMachines()
    nodes.add("n")
    room = Room(nodes=nodes)
    room.enter("n-1", "n-2", "n-3", "a-1", "a-2", "b-1")
    assert room.closed == ["a-1", "a-2"]
    assert NODE_PLACES > MOST


def test_the_machines_of_nodes_are_bounded() -> None:
    """The machine that proved the secret longest ago is forgotten first."""
    nodes = NodeMachines()
    for number in range(MAX_NODE_MACHINES):
        nodes.add(str(number))
    nodes.add("0")
    nodes.add("new")
    assert "0" in nodes and "new" in nodes and "1" not in nodes


def test_a_network_of_ipv6_is_one_machine() -> None:
    """A machine has as many addresses there as it likes."""
    assert machine_of("2001:db8::1") == machine_of("2001:db8::ffff:1") != machine_of("2001:db8:1::1")
    assert machine_of("127.0.0.1") == "127.0.0.1"
    assert machine_of("::ffff:127.0.0.1") == "::ffff:127.0.0.1"
    assert machine_of("User:alice") == "User:alice"


def test_the_host_of_a_peer_has_no_zone() -> None:
    """And sockets that are none of the Internet have no host."""
    assert host_of(("fe80::1%eth0", 1, 0, 0)) == "fe80::1"
    assert host_of("") == host_of(None) == ""


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=60))
def test_no_sequence_of_comings_and_goings_exceeds_the_places(steps: list[tuple[str, bool]]) -> None:
    """The newcomer is among the holders, and each holder was closed, left, or is still there."""
    room, here, number = Room(), dict[str, None](), 0
    for machine, comes in steps:
        if comes:
            number += 1
            name = f"{machine}-{number}"
            before = len(room.closed)
            room.enter(name)
            here[name] = None
            for closed in room.closed[before:]:
                del here[closed]
            assert name in here
        elif here:
            oldest = next(iter(here))
            del here[oldest]
            room.places.leave(oldest)
        assert list(room.places) == list(here) and len(here) <= MOST
