"""The authorizer against the model, for as many random rule sets as one likes."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from tests.kit.marks import nightly
from tests.security.rule_sets import RuleSet, answer, rule_sets

TASTE = 2_000
ALL = 100_000


@pytest.mark.parametrize(("seed", "count"), [(1, TASTE), nightly(2, ALL)])
def test_every_answer_is_the_models(seed: int, count: int) -> None:
    """Super users, `*`, prefixes, DENY, hosts, implied operations, laxness, and questions for any name."""
    outcomes: Counter[tuple[bool, bool]] = Counter()
    for number, rules in enumerate(rule_sets(seed, count)):
        authorizer = rules.authorizer()
        for question in rules.questions:
            expected = rules.expected(question)
            assert answer(authorizer, question) is expected, (number, rules, question)
            outcomes[question.name is None, expected] += 1
    asked = outcomes.total()
    assert len(outcomes) == 4 and min(outcomes.values()) > asked / 20, "the questions are of all kinds"


@pytest.mark.parametrize(("seed", "count"), [(3, TASTE // 4), nightly(4, ALL // 4)])
def test_answers_follow_rules_that_come_and_go(seed: int, count: int) -> None:
    """A kept answer never outlives the rules that it rests on."""
    chance = Random(seed)
    for number, rules in enumerate(rule_sets(seed, count)):
        authorizer = rules._replace(acls=()).authorizer()
        in_force: dict[object, None] = {}
        for acl in rules.acls * 2:
            if acl in in_force and chance.random() < 0.7:
                del in_force[acl]
                authorizer.change(removed=[acl])
            elif acl not in in_force:
                in_force[acl] = None
                authorizer.change(added=[acl])
            now = RuleSet(*rules[:2], tuple(acl for acl in rules.acls if acl in in_force), rules.questions)
            for question in now.questions[:3]:
                assert answer(authorizer, question) is now.expected(question), (number, now, question)
