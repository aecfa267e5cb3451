"""Rules for every attack in the book, which replace a review of a hundred scripts."""

from __future__ import annotations

import inspect

from raftlog_chaos.attacks.registry import load_attacks

LONGEST_S = 90.0
IN_CI = 10
LINES = 45


def test_every_attack_says_in_one_sentence_what_it_claims():
    """`raftlog attack --list` shows the sentence, and a failure contradicts it."""
    for each in load_attacks().values():
        assert each.claim.endswith(".") and each.claim[0].isalpha(), each.name
        assert len(each.claim) <= 120, each.name


def test_every_attack_is_bounded_in_time():
    """It is cut off after that, whatever the nodes do."""
    assert all(0 < each.within_s <= LONGEST_S for each in load_attacks().values())


def test_every_attack_is_a_few_lines():
    """A longer attack is a program, and needs tests of its own."""
    long = {
        name for name, each in load_attacks().items() if len(inspect.getsource(each.run).splitlines()) > LINES
    }
    assert not long


def test_ten_attacks_run_in_ci_and_reach_every_port():
    """On one cluster, so that they fit into a minute and a half."""
    chosen = [each for each in load_attacks().values() if each.ci]
    assert len(chosen) == IN_CI
    assert {each.port for each in chosen} == {"kafka", "controller", "http"}
    assert {each.shape for each in chosen} == {"usual"}
