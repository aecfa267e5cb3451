"""raftlog's authorizer and Kafka's own, asked the same questions about the same rules."""

from __future__ import annotations

import json
import subprocess
from collections import Counter

import pytest

from tests.interop.member_kinds import java_command
from tests.security.rule_sets import answer, as_json, rule_sets

pytestmark = pytest.mark.java

CASES = 10_000


def test_every_answer_is_that_of_kafkas_standard_authorizer() -> None:
    """The jar of Kafka 4.3 loads each rule set as a snapshot, and answers `authorize` and `authorizeByResourceType`."""
    cases = list(rule_sets(5, CASES))
    lines = "".join(json.dumps(as_json(each)) + "\n" for each in cases)
    answered = subprocess.run(
        java_command("raftlog.Authorizations"), input=lines, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert len(answered) == len(cases)
    outcomes: Counter[tuple[bool, str]] = Counter()
    for number, (rules, theirs) in enumerate(zip(cases, answered, strict=True)):
        authorizer = rules.authorizer()
        for question, their in zip(rules.questions, theirs, strict=True):
            assert answer(authorizer, question) is (their == "1"), (number, rules, question, their)
            outcomes[question.name is None, their] += 1
    assert len(outcomes) == 4, "the questions are of all kinds"
