"""Claims about settings of logins: either client's names, and no secret in a text."""

from __future__ import annotations

import pytest

from raftlog.pipeline.login import for_java, for_librdkafka
from raftlog.pipeline.options import OptionFaults, read_options

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def test_a_login_there_and_back_is_the_same():
    """Quotes and backslashes in a password survive."""
    ours = {
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "a",
        "sasl.password": 'x"\\;=y',
        "ssl.ca.pem": "P",
    }
    java = for_java(ours)
    assert java["ssl.truststore.type"] == "PEM"
    assert "sasl.password" not in java
    assert for_librdkafka(java) == (ours, [])


@pytest.mark.parametrize(
    "jaas", ["", "hidden", f'{SCRAM} required username="hidden";', 'evil.Module required a="hidden";']
)
def test_a_wrong_login_is_named_and_not_quoted(jaas: str):
    """JAAS can load any class of Java: only two are known."""
    _found, faults = for_librdkafka({"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas})
    ((name, why),) = faults
    assert name == "sasl.jaas.config"
    assert "hidden" not in why


def test_options_show_no_secret():
    """In their text, also when they are wrong."""
    given = {"subscribe": "t", "kafka.bootstrap.servers": "h:1", "kafka.sasl.password": "hidden-word"}
    assert "hidden-word" not in repr(read_options(given))
    with pytest.raises(OptionFaults) as caught:
        read_options({**given, "nonsense": "1"})
    assert "hidden-word" not in str(caught.value)
