"""Seeds that once found something. They are told in the tests and by `make sim`, so that it stays found.

A change of the simulator or of a story gives every seed another world: the seed then proves less than it did, and the
unit test that came with the mending proves the rest.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Regression(NamedTuple):
    """A seed of a story, and what it showed."""

    story: str
    seconds: float
    seed: int
    found: str


REGRESSIONS: Final = (
    Regression("quorum", 6.0, 1405, "an observer asked a voter whose own snapshot was not on the disk yet"),
    Regression(
        "endurance", 6.0, 28, "the journal of a restarted node was trusted though its sync had failed"
    ),
    Regression("endurance", 4.0, 5, "the controller listener closed its channels in the order of a set"),
    Regression("endurance", 6.0, 13, "a topic made anew was judged by the recovery points of a former one"),
    Regression("endurance", 6.0, 23, "the same, with five nodes"),
    Regression(
        "endurance", 6.0, 52, "a deleted partition's folder came back without its files after a power loss"
    ),
)
