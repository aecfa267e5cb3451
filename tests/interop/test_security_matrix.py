"""Every way into a cluster with KafkaJS and the Java client, with right and wrong credentials each."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tests.clients.five_listeners import WAYS, FiveListeners, Hand, Way, five_listeners, judge
from tests.interop.member_kinds import JAVASCRIPT
from tests.interop.scripts import KafkaScripts
from tests.kit.waits import PATIENCE_S

PRODUCER = "org.apache.kafka.tools.ProducerPerformance"
SECURITY = "org.apache.kafka.common.security"
MODULES = {"PLAIN": "plain.PlainLoginModule", "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule"}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FiveListeners]:
    with five_listeners(tmp_path_factory.mktemp("matrix")) as found:
        yield found


# --- KafkaJS


@pytest.fixture(scope="module")
def kafkajs() -> Iterator[subprocess.Popen[str]]:
    """One process for all attempts."""
    command = ("node", str(JAVASCRIPT / "producer.js"))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()
        process.wait(PATIENCE_S)


@pytest.mark.kafkajs
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_kafkajs_gets_in_with_the_right_credentials_only(
    here: FiveListeners, kafkajs: subprocess.Popen[str], way: Way
) -> None:
    """It takes the challenge of a refused token for success, and is still refused."""

    def attempt(bootstrap: str, hand: Hand, topic: str) -> str | None:
        assert kafkajs.stdin is not None and kafkajs.stdout is not None
        kafkajs.stdin.write(json.dumps({"bootstrap": bootstrap, "topic": topic, **hand._asdict()}) + "\n")
        kafkajs.stdin.flush()
        complaint: str | None = json.loads(kafkajs.stdout.readline())
        return complaint

    judge(here, way, attempt)


# --- Java


class JavaProducer:
    """The stock producer, as kafka-producer-perf-test.sh starts it, on one JVM; tokens come from a file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._token = folder / "token.jwt"
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self._token.as_uri()}"
        self.scripts = KafkaScripts(allowed)

    def attempt(self, bootstrap: str, hand: Hand, topic: str) -> str | None:
        """Produce one record."""
        path = self._folder / "producer.properties"
        settings = self._settings(hand) | {
            "bootstrap.servers": bootstrap,
            "max.block.ms": "5000",
            "reconnect.backoff.max.ms": "200",
        }
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        words = ("--topic", topic, "--num-records", "1", "--record-size", "10", "--throughput", "-1")
        printed = self.scripts.run(PRODUCER, *words, "--command-config", str(path))
        return None if "1 records sent" in printed and "Exception" not in printed else printed

    def _settings(self, hand: Hand) -> dict[str, str]:
        settings = {"security.protocol": hand.protocol}
        if hand.mechanism:
            settings["sasl.mechanism"] = hand.mechanism
            settings["sasl.jaas.config"] = self._jaas(hand)
        if hand.mechanism == "OAUTHBEARER":
            self._token.write_text(hand.token)
            settings |= {
                "sasl.oauthbearer.token.endpoint.url": self._token.as_uri(),
                "sasl.login.callback.handler.class": f"{SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler",
            }
        if hand.authority:
            settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": hand.authority}
        if hand.certificate:
            settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self._keystore(hand))}
        return settings

    def _jaas(self, hand: Hand) -> str:
        module = f"{SECURITY}.{MODULES.get(hand.mechanism, 'scram.ScramLoginModule')} required"
        if hand.mechanism == "OAUTHBEARER":
            return f"{module};"
        return f'{module} username="{hand.user}" password="{hand.password}";'

    def _keystore(self, hand: Hand) -> Path:
        """Write the certificate with its key in PKCS #8, the only form that Java reads from PEM."""
        raw = Path(hand.certificate).read_bytes()
        key = load_pem_private_key(raw, None).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path = self._folder / "keystore.pem"
        path.write_bytes(key + raw[raw.index(b"-----BEGIN CERTIFICATE-----") :])
        return path


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaProducer]:
    found = JavaProducer(tmp_path_factory.mktemp("java"))
    yield found
    found.scripts.kill()


@pytest.mark.java
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_the_java_client_gets_in_with_the_right_credentials_only(
    here: FiveListeners, java: JavaProducer, way: Way
) -> None:
    """With Kafka's own settings, PEM stores and a token from a file among them."""
    judge(here, way, java.attempt)
