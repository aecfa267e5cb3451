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
