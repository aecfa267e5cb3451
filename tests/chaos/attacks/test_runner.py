"""Attacks share a cluster without findings; a suspect is run alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raftlog_chaos.attacks.registry import Attack
from raftlog_chaos.attacks.runner import ATTACKS_PER_SESSION, Runner, groups_of
from raftlog_chaos.attacks.session import Closing
from raftlog_chaos.attacks.verdict import MIB, ClusterObservation, Outcome, Times
from tests.chaos.attacks.kit import LIMITS, FakeSession, an_attack, calm, with_node

SeenOf = Callable[[Attack, list[str]], ClusterObservation]
ABC = [an_attack("a"), an_attack("b"), an_attack("c")]


class Sessions:
    """Starts fake sessions and remembers them."""

    def __init__(
        self,
        seen_of: SeenOf,
        closing_of: Callable[[list[str]], Closing] = lambda _: Closing([], []),
        *,
        attacks_in_time: int = 1_000,
    ) -> None:
        self.all: list[FakeSession] = []
        self._seen_of = seen_of
        self._closing_of = closing_of
        self.runner = Runner(
            self._start, self, LIMITS, has_time=lambda: sum(map(len, self.struck)) < attacks_in_time
        )
        self.lines: list[str] = []

    def _start(self, _shape: object) -> FakeSession:
        self.all.append(FakeSession(self._seen_of, self._closing_of))
        return self.all[-1]

    @property
    def struck(self) -> list[list[str]]:
        return [each.struck for each in self.all]

    def begins(self, attack: Attack) -> None:
        self.lines.append(f"begins {attack.name}")

    def ended(self, outcome: Outcome) -> None:
        self.lines.append(f"ended {outcome.attack} {outcome.status}")

    def print_line(self, line: str) -> None:
        self.lines.append(line)


def statuses(outcomes: list[Outcome]) -> list[str]:
    return [each.status for each in outcomes]


def test_attacks_that_pass_share_a_cluster():
    """Starting one takes longer than most attacks."""
    sessions = Sessions(lambda _attack, _before: calm())
    assert statuses(sessions.runner.run(ABC)) == ["passed"] * 3
    assert sessions.struck == [["a", "b", "c"]]


def test_a_cluster_that_was_harmed_is_not_used_again():
    """The next attack would be judged by the effects of its predecessor."""
    sessions = Sessions(lambda attack, _: with_node(1, ended="killed") if attack.name == "b" else calm())
    assert statuses(sessions.runner.run(ABC)) == ["passed", "failed", "passed"]
    assert sessions.struck == [["a", "b"], ["c"]]


def test_memory_that_one_attack_keeps_is_its_own():
    """It is run again on a cluster of its own, and fails there too."""
    sessions = Sessions(
        lambda attack, _: with_node(1, rest_bytes=300 * MIB) if attack.name == "b" else calm()
    )
    outcomes = sessions.runner.run(ABC)
    assert statuses(outcomes) == ["passed", "failed", "passed"]
    assert sessions.struck == [["a", "b"], ["b"], ["c"]]
    assert outcomes[1].faults == ["node 1 keeps 210 MiB above idle 60 s later"]


def test_memory_that_several_attacks_add_up_to_names_them():
    """The last attack alone keeps no memory."""
    sessions = Sessions(
        lambda _attack, before: with_node(1, rest_bytes=300 * MIB) if len(before) == 2 else calm()
    )
    outcomes = sessions.runner.run(ABC)
    assert statuses(outcomes) == ["passed", "passed", "failed"]
    assert sessions.struck == [["a", "b", "c"], ["c"]]
    assert outcomes[2].faults == ["only after a, b: node 1 keeps 210 MiB above idle 60 s later"]


SLOW = Times(500, 2.0, 3.0)


def test_an_attack_that_only_made_bystanders_wait_is_run_again():
    """Once, and alone, whatever was struck before: the second run counts."""
    times = iter([SLOW, SLOW, SLOW, Times(500, 0.1, 0.1)])
    sessions = Sessions(lambda attack, _: calm(sends=next(times)) if attack.name in "bc" else calm())
    assert statuses(sessions.runner.run(ABC)) == ["passed", "failed", "passed"]
    assert sessions.struck == [["a", "b"], ["b"], ["c"], ["c"]]


def test_lost_records_are_blamed_on_the_attack_that_loses_them():
    """Lost records are known only at the end of a session: each of its attacks is run alone."""
    sessions = Sessions(
        lambda _attack, _before: calm(), lambda struck: Closing(["lost-write"] if "b" in struck else [], [])
    )
    outcomes = sessions.runner.run(ABC)
    assert statuses(outcomes) == ["passed", "failed", "passed"]
    assert sessions.struck == [["a", "b", "c"], ["a"], ["b"], ["c"]]
    assert outcomes[1].faults == ["lost-write"]


def warm_after(*names: str) -> SeenOf:
    """Return what is seen if memory is not back soon after some attacks."""
    return lambda attack, _: calm(is_warm=attack.name in names)


KEPT = ["node 1 keeps 90 MiB above idle 60 s later"]


def test_memory_that_is_not_back_soon_does_not_hold_up_the_next_attack():
    """It is back at the session's end, so no attack is run again."""
    sessions = Sessions(warm_after("a", "c"))
    assert statuses(sessions.runner.run(ABC)) == ["passed"] * 3
    assert sessions.struck == [["a", "b", "c"]]


def test_memory_that_is_not_back_at_the_end_is_blamed_on_the_attack_that_keeps_it():
    """The suspects are run alone: attacks since the last measurement with all memory back."""
    sessions = Sessions(warm_after("b", "c"), lambda struck: Closing([], KEPT if "b" in struck else []))
    outcomes = sessions.runner.run(ABC)
    assert statuses(outcomes) == ["passed", "failed", "passed"]
    assert sessions.struck == [["a", "b", "c"], ["b"], ["c"]]
    assert outcomes[1].faults == KEPT


def test_memory_at_the_end_that_no_attack_keeps_alone_names_all():
    """Several add up to it; the last suspect stands for them."""
    sessions = Sessions(warm_after("b", "c"), lambda struck: Closing([], KEPT if len(struck) > 1 else []))
    outcomes = sessions.runner.run(ABC)
    assert statuses(outcomes) == ["passed", "passed", "failed"]
    assert outcomes[2].faults == [f"only after a, b: {KEPT[0]}"]


def test_memory_is_judged_even_if_a_later_attack_ends_the_session():
    """Otherwise an attack that leaves memory behind would hide behind the failure of the next."""

    def seen_of(attack: Attack, _before: list[str]) -> ClusterObservation:
        return with_node(1, ended="killed") if attack.name == "b" else calm(is_warm=attack.name == "a")

    sessions = Sessions(seen_of, lambda struck: Closing([], KEPT if struck == ["a"] else []))
    assert statuses(sessions.runner.run(ABC)) == ["failed", "failed", "passed"]
    assert sessions.struck == [["a", "b"], ["a"], ["c"]]


def test_a_peak_on_top_of_memory_that_was_left_is_run_again():
    """Alone it stays within the limit, and that counts."""

    def seen_of(attack: Attack, before: list[str]) -> ClusterObservation:
        if attack.name == "b" and before:
            seen = calm()
            seen.nodes[1].peak_bytes = 400 * MIB
            return seen
        return calm(is_warm=attack.name == "a")

    sessions = Sessions(seen_of)
    assert statuses(sessions.runner.run(ABC)) == ["passed"] * 3
    assert sessions.struck == [["a", "b"], ["b"], ["a"], ["c"]]


def test_a_run_that_is_out_of_time_begins_no_further_attack():
    """A left-over attack has no outcome, and the report says so."""
    sessions = Sessions(lambda _attack, _before: calm(), attacks_in_time=2)
    assert len(sessions.runner.run(ABC)) == 2
    assert sessions.struck == [["a", "b"]]


def test_without_time_to_find_the_culprit_all_suspects_have_failed():
    """An outcome that is not known is no success."""
    sessions = Sessions(
        lambda _attack, _before: calm(), lambda _: Closing(["lost-write"], []), attacks_in_time=3
    )
    assert statuses(sessions.runner.run(ABC)) == ["failed"] * 3
    assert sessions.struck == [["a", "b", "c"]]


def test_an_interruption_takes_the_cluster_down():
    """Ctrl-C may come at any moment; no process waits for a last reading."""

    def interrupt(_attack: Attack, _before: list[str]) -> ClusterObservation:
        raise KeyboardInterrupt

    sessions = Sessions(interrupt)
    with pytest.raises(KeyboardInterrupt):
        sessions.runner.run(ABC)
    assert sessions.all[0].log == ["open", "abandon"]


def test_groups_are_of_one_shape_and_bounded():
    """A cluster is started for one kind of attack."""
    many = [an_attack(str(number)) for number in range(ATTACKS_PER_SESSION + 1)]
    groups = list(groups_of([an_attack("cold", "cold"), *many, an_attack("few", "few files")]))
    assert [len(group) for group in groups] == [ATTACKS_PER_SESSION, 1, 1, 1]
    assert [group[0].shape for group in groups] == ["usual", "usual", "cold", "few files"]


def test_cold_attacks_find_a_cluster_that_was_asked_nothing():
    """Its session opens without the round of questions that loads everything."""
    sessions = Sessions(lambda _attack, _before: calm())
    sessions.runner.run([an_attack("cold", "cold")])
    assert sessions.all[0].log == ["open cold", "cold", "close"]
