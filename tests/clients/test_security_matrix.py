"""Every way into a cluster with every Python client, with right and wrong credentials each."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AiokafkaTokens
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokens

from tests.cli.live import invoke
from tests.clients.five_listeners import (
    WAYS,
    FiveListeners,
    Hand,
    Way,
    five_listeners,
    judge,
    topic_of,
)
from tests.kit.identity_provider import CLIENT_SECRET
from tests.kit.waits import PATIENCE_MS, PATIENCE_S, poll_until

REFUSED_WITHIN_S = 3.0
"""kafka-python and aiokafka give up a cluster that they cannot reach after so long."""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FiveListeners]:
    with five_listeners(tmp_path_factory.mktemp("matrix")) as found:
        yield found


# --- librdkafka


def settings_of_librdkafka(bootstrap: str, hand: Hand) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "security.protocol": hand.protocol,
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
    }
    if hand.mechanism == "OAUTHBEARER":
        settings |= {"sasl.mechanism": hand.mechanism, "oauth_cb": lambda _: (hand.token, time.time() + 600)}
    elif hand.mechanism:
        settings |= {
            "sasl.mechanism": hand.mechanism,
            "sasl.username": hand.user,
            "sasl.password": hand.password,
        }
    if hand.authority:
        settings["ssl.ca.location"] = hand.authority
    if hand.certificate:
        settings |= {"ssl.certificate.location": hand.certificate, "ssl.key.location": hand.certificate}
    return settings


def with_librdkafka(bootstrap: str, hand: Hand, topic: str) -> str | None:
    """Produce one record; an error of every broker, or of a login, is a refusal."""
    errors: list[KafkaError] = []
    outcomes: list[KafkaError | None] = []
    producer = Producer(settings_of_librdkafka(bootstrap, hand) | {"error_cb": errors.append})
    producer.produce(topic, b"x", on_delivery=lambda error, _: outcomes.append(error))
    fatal = {KafkaError._AUTHENTICATION, KafkaError._ALL_BROKERS_DOWN, KafkaError._SSL}
    poll_until(
        lambda: (producer.poll(0.05) and outcomes) or any(each.code() in fatal for each in errors),
        "the record is acknowledged or the client refused",
        seen=lambda: errors,
    )
    if outcomes:
        return None if outcomes[0] is None else outcomes[0].str()
    producer.purge()
    return " ".join(each.str() for each in errors)


def oidc_settings(here: FiveListeners, token_url: str, secret: str) -> dict[str, str]:
    """Return the settings with which a program has librdkafka fetch its tokens, as the how-to shows."""
    return {
        "bootstrap.servers": here.bootstrap("SECURE"),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(here.authority),
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": token_url,
        "sasl.oauthbearer.client.id": "alice",
        "sasl.oauthbearer.client.secret": secret,
    }


def test_librdkafka_fetches_its_tokens_itself(here: FiveListeners, tmp_path: Path) -> None:
    """With `sasl.oauthbearer.method=oidc` (KIP-768), in a program and in a file for `raftlog`; not with a guess."""
    with here.provider.serving() as url:
        settings = oidc_settings(here, url.replace("/keys", "/token"), CLIENT_SECRET)
        seen = AdminClient(settings).list_topics(timeout=PATIENCE_S)
        assert set(seen.topics) == {topic_of("alice")}
        file = tmp_path / "oidc.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        code, out, err = invoke("topic", "list", "-F", str(file), "--json")
        assert code == 0 and topic_of("alice") in out, err
        errors: list[KafkaError] = []
        guess = settings | {"sasl.oauthbearer.client.secret": "a guess", "log_level": "0"}
        client = AdminClient(guess | {"error_cb": errors.append})  # type: ignore[dict-item]
        poll_until(lambda: client.poll(0.1) or errors, "the identity provider gives no token")
        assert errors[0].code() == KafkaError._AUTHENTICATION


def test_unsigned_tokens_are_refused(here: FiveListeners) -> None:
    """Tokens that librdkafka makes itself, as Kafka accepts them by default."""
    unsigned = {
        "bootstrap.servers": here.bootstrap("LOGINS"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": "principal=admin",
        "log_level": "0",
    }
    before = here.refusals().get('mechanism="OAUTHBEARER",reason="algorithm"', 0)
    errors: list[KafkaError] = []
    client = AdminClient(unsigned | {"error_cb": errors.append})  # type: ignore[dict-item]
    poll_until(lambda: client.poll(0.1) or errors, "the login is refused")
    assert errors[0].code() == KafkaError._AUTHENTICATION
    assert here.refusals()['mechanism="OAUTHBEARER",reason="algorithm"'] > before


# --- kafka-python


class OneToken(KafkaPythonTokens):
    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token


def with_kafka_python(bootstrap: str, hand: Hand, topic: str) -> str | None:
    """Produce one record."""
    settings: dict[str, Any] = {"security_protocol": hand.protocol}
    if hand.mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = OneToken(hand.token)
    elif hand.mechanism:
        settings |= {"sasl_plain_username": hand.user, "sasl_plain_password": hand.password}
    if hand.mechanism:
        settings["sasl_mechanism"] = hand.mechanism
    if hand.authority:
        settings["ssl_cafile"] = hand.authority
    if hand.certificate:
        settings |= {"ssl_certfile": hand.certificate, "ssl_keyfile": hand.certificate}
    try:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap.split(","),
            bootstrap_timeout_ms=int(REFUSED_WITHIN_S * 1000),
            max_block_ms=PATIENCE_MS,
            **settings,
        )
        try:
            producer.send(topic, b"x").get(PATIENCE_S)
        finally:
            producer.close(1)
    except KafkaPythonError as error:
        return repr(error)
    return None


# --- aiokafka


class OneTokenLater(AiokafkaTokens):
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def with_aiokafka(bootstrap: str, hand: Hand, topic: str) -> str | None:
    """Produce one record."""
    settings: dict[str, Any] = {"bootstrap_servers": bootstrap, "security_protocol": hand.protocol}
    if hand.mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = OneTokenLater(hand.token)
    elif hand.mechanism:
        settings |= {"sasl_plain_username": hand.user, "sasl_plain_password": hand.password}
    if hand.mechanism:
        settings["sasl_mechanism"] = hand.mechanism
    if hand.authority:
        context = ssl.create_default_context(cafile=hand.authority)
        if hand.certificate:
            context.load_cert_chain(hand.certificate)
        settings["ssl_context"] = context

    async def produce() -> str | None:
        producer = AIOKafkaProducer(**settings)
        try:
            await producer.start()
            await producer.send_and_wait(topic, b"x")
        except AiokafkaError as error:
            return repr(error)
        finally:
            await producer.stop()
        return None

    return asyncio.run(asyncio.wait_for(produce(), PATIENCE_S))


CLIENTS: dict[str, Callable[[str, Hand, str], str | None]] = {
    "librdkafka": with_librdkafka,
    "kafka-python": with_kafka_python,
    "aiokafka": with_aiokafka,
}


CELLS = [
    pytest.param(
        client,
        way,
        id=f"{client}-{way}",
        # kafka-python tries for all its time whatever the refusal, so that a taste of it is enough for each day
        marks=pytest.mark.nightly if client == "kafka-python" and str(way) != "secure-oauthbearer" else (),
    )
    for client in CLIENTS
    for way in WAYS
]


@pytest.mark.parametrize(("client", "way"), CELLS)
def test_a_client_gets_in_with_the_right_credentials_only(here: FiveListeners, client: str, way: Way) -> None:
    """As the proved user, which alone may write to the topic; a wrong login is counted by its reason."""
    judge(here, way, CLIENTS[client])


@pytest.mark.nightly
def test_a_client_logs_in_again_before_its_token_ends(here: FiveListeners) -> None:
    """KIP-368: librdkafka does so on the connections that it has, and no record of it is lost or late.

    It does after nine tenths of the time, and the rest has to be long enough for a busy machine.
    """
    way, lasts_s = Way("LOGINS", "OAUTHBEARER"), 15
    tokens: list[str] = []

    def next_token(_: str) -> tuple[str, float]:
        tokens.append(here.provider.token("alice", lasts_s=lasts_s))
        return tokens[-1], time.time() + lasts_s

    errors: list[KafkaError] = []
    outcomes: list[KafkaError | None] = []
    settings = settings_of_librdkafka(here.bootstrap("LOGINS"), here.right(way))
    producer = Producer(settings | {"oauth_cb": next_token, "error_cb": errors.append, "linger.ms": 0})
    late, sent = here.told("request_before_login"), 0

    def goes_on() -> bool:
        nonlocal sent
        producer.produce(topic_of("alice"), b"x", on_delivery=lambda error, _: outcomes.append(error))
        sent += 1
        producer.poll(0.05)
        return len(tokens) > 2

    poll_until(goes_on, "two tokens have followed the first one", seen=lambda: (len(tokens), errors))
    producer.flush(PATIENCE_S)
    assert outcomes == [None] * sent
    assert not errors
    assert here.told("request_before_login") == late
