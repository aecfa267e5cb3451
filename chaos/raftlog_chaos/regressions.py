"""Seeds that once found something. They are told in the tests and by `make sim`, so that it stays found.

`planted:` is what a seed finds where that bug of `tests/planted` is put into sound code.

A change of the simulator or of a scenario gives every seed another world. Then a seed proves less than it did. The unit
test that came with the mending proves the rest.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Regression(NamedTuple):
    """A seed of a scenario, and what it showed."""

    scenario: str
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
    Regression("commits", 3.0, 10053, "a topic was unknown to a broker that was asked too early to commit"),
    Regression("kip-101", 3.0, 1030, "nobody knew of any topic yet when all had restarted"),
    Regression("double-failover", 3.0, 1044, "clients wrote faster than a replica could catch up"),
    Regression("corruption", 3.0, 1018, "rot in an offset was taken for another record"),
    Regression("corruption", 3.0, 1022, "rot in an offset was not looked for, and met the judge"),
    Regression("corruption", 3.0, 10067, "the last member of an ISR found out that it had rotted"),
    Regression("endurance", 6.0, 10015, "a node whose power went took a port on its way out"),
    Regression(
        "endurance", 6.0, 51, "a node that started on a full disk could not recover its logs, and ended"
    ),
    Regression("endurance", 6.0, 10032, "a topic whose creation was given up came after all"),
    Regression(
        "endurance", 6.0, 112, "a disk failed while its node was being stopped and followed nobody any more"
    ),
    Regression("exactly-once-groups", 3.0, 13, "planted: offsets of an open transaction are told"),
    Regression("group-migration", 3.0, 6, "planted: an upgrade believes assignments, not who still reads"),
    Regression("hanging-transactions", 3.0, 9, "an operator's abort took what had grown into what hung"),
    Regression("made-up-producers", 3.0, 4, "planted: a follower pushes out other producers than its leader"),
    Regression("odd-headers", 3.0, 1, "planted: a client's largest timestamp is believed"),
    Regression("rotten-files", 6.0, 8, "a copy that rotted stayed so until its file rotted as well"),
    Regression(
        "names-of-one-log", 4.0, 5, "a log began at its second segment: the first one's name was lost"
    ),
    Regression("clock-jumps", 3.0, 1, "planted: age is judged by the wall clock"),
    Regression(
        "clock-jumps", 6.0, 11, "an answer about a clock before it jumped confirmed it, and all was old"
    ),
    Regression("believed-time", 3.0, 4, "planted: a node passes over the other brokers' clocks"),
    Regression(
        "believed-time", 3.0, 23, "planted: clocks that were all set wrong are confirmed by a new node"
    ),
    Regression(
        "quorum-calm", 6.0, 23, "a leader that hears nobody led for so long that its successor came late"
    ),
    Regression("refused-holes", 6.0, 1, "rot cut a committed marker off, and what it had aborted was shown"),
)
