"""Claims about the clients of the pipeline: how patient they are with logins that fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from raftlog.pipeline.clients import Administrator
from raftlog.pipeline.login import PATIENT_FOR, Refused

SETTINGS = {"bootstrap.servers": "h:1", "sasl.username": "reader", "sasl.password": "hidden-word"}


class Answers:
    """A stand-in for librdkafka's admin client: it reports failed logins when it is polled, as librdkafka does."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._tell: Callable[[KafkaError], None] = settings["error_cb"]
        self.failed_logins = 0

    def __len__(self) -> int:
        """Return how many messages wait, as all of librdkafka's clients do: an admin client is always false."""
        return 0

    def poll(self, _timeout: float) -> None:
        for _ in range(self.failed_logins):
            self._tell(KafkaError(KafkaError._AUTHENTICATION, "hidden-word is wrong"))
        self.failed_logins = 0


@pytest.fixture
def administrator(monkeypatch: pytest.MonkeyPatch) -> Administrator:
    monkeypatch.setattr("confluent_kafka.admin.AdminClient", Answers)
    monkeypatch.setattr("raftlog.pipeline.clients.PAUSE_S", 0.0)
    return Administrator(SETTINGS)


def test_all_questions_are_asked_by_one_client(administrator: Administrator):
    """A new client has no broker to ask yet when it looks for leaders, and then waits for seconds."""
    asked: list[Answers] = []
    for _ in range(3):
        administrator.ask(asked.append, "ask")
    assert asked == [asked[0]] * 3


def test_logins_that_failed_are_forgotten_once_the_cluster_answers(administrator: Administrator):
    """So that a fault which passes is still waited for, however many logins a restart of brokers made fail before."""

    def answer(client: Answers) -> str:
        client.failed_logins = PATIENT_FOR
        return "an answer"

    def answer_at_second_try(_client: Answers) -> str:
        if not tries:
            tries.append(1)
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return "another"

    tries: list[int] = []
    assert administrator.ask(answer, "ask") == "an answer"
    assert administrator.ask(answer_at_second_try, "ask again") == "another"


def test_logins_that_keep_failing_end_a_question_with_a_sentence(administrator: Administrator):
    """Which names the user and the servers, and hides the password if the cluster repeats it."""
    tries: list[int] = []

    def fail(client: Answers) -> None:
        tries.append(1)
        client.failed_logins = 1
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    with pytest.raises(Refused) as refused:
        administrator.ask(fail, "ask")
    assert str(refused.value) == r"h:1 does not let user reader in: [hidden] is wrong"
    assert len(tries) == PATIENT_FOR


@pytest.mark.parametrize(("doing", "right"), [("read", "READ"), ("create", "CREATE")])
def test_a_right_that_is_missing_is_named(administrator: Administrator, doing: str, right: str):
    """It does not come by itself: there is no wait for it."""

    def refuse(_client: Answers) -> None:
        raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))

    with pytest.raises(Refused, match=f"user reader may not {doing} topic t: this needs the right {right}"):
        administrator.ask(refuse, "ask", doing=doing, topics=["t"])
