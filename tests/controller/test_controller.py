"""The controller as a whole: leadership, parking, liveness."""

from __future__ import annotations

from tests.controller.world import World


def test_kill_moves_leaderships_and_isr_in_one_batch() -> None:
    """A refused probe after a lost connection fences a broker with all its partitions (Architecture, Liveness)."""
    world = World()
    world.start(1, 2, 3)
    world.create("orders", 6, 3)
    batches = len(world.journal)
    world.die(2)
    assert len(world.journal) == batches + 1
    assert world.image.brokers[2].fenced
    for state in world.image.topics["orders"].partitions:
        assert 2 not in state.isr
        assert state.leader in (1, 3)


def test_a_new_controller_probes_who_is_not_connected_at_once_and_again() -> None:
    """The last controller's node is often the dead one; who is slow to connect gets a second look."""
    world = World(controllers=2)
    world.start(1, 2, 3)
    world.controllers[2].peer_connected(1, world.now)
    world.elect(2)
    assert world.probes == [3]
    world.advance(0.1)
    world.active.probed(3, "alive", world.now)
    assert world.probes == [3]
    world.advance(0.15)
    assert world.probes == [3, 3]
    world.active.probed(3, "refused", world.now)
    assert world.image.brokers[3].fenced


def test_a_new_controller_leaves_who_connects_in_time_alone() -> None:
    """One look at the start does nobody harm; the second is for those who did not come."""
    world = World(controllers=2)
    world.start(1, 2, 3)
    world.controllers[2].peer_connected(1, world.now)
    world.elect(2)
    world.active.peer_connected(3, world.now)
    world.advance(0.5, heartbeats=(1, 2, 3))
    assert world.probes == [3]
