"""The settings of the HTTP admin API's TLS, and what it needs beyond loopback."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from raftlog.base.config import ConfigFaults, NodeConfig, load_config
from raftlog.base.config.security import STANDARD_AUTHORIZER
from raftlog.base.config.tls import ListenerTls
from tests.kit.errors import raises_faults

FAR = {"raftlog.admin.listener": "0.0.0.0:9644"}
RULES = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:root",
    "raftlog.cluster.secret": "a secret of sixteen bytes",
}
STORE = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "node.pem"}
ADVERTISED = "raftlog.admin.advertised.listener"
SSL = {"raftlog.admin.security.protocol": "SSL"}


def load(*flags: Mapping[str, str], environment: Mapping[str, str] | None = None) -> NodeConfig:
    return load_config(
        flags={name: text for each in flags for name, text in each.items()}, environment=environment
    )


def tls(*flags: Mapping[str, str], environment: Mapping[str, str] | None = None) -> ListenerTls:
    found = load(*flags, environment=environment).admin_tls
    assert found is not None
    return found


def test_https_is_by_the_settings_of_the_node_or_its_own() -> None:
    """`raftlog.admin.ssl.*` overrides `ssl.*`, as `listener.name.*` does; the environment too."""
    assert load().admin_tls is None
    assert tls(SSL, STORE).ssl_keystore_location == "node.pem"
    own = {
        "raftlog.admin.ssl.keystore.location": "admin.pem",
        "raftlog.admin.ssl.truststore.location": "ca.pem",
    }
    own |= {"raftlog.admin.ssl.truststore.type": "PEM", "raftlog.admin.ssl.client.auth": "requested"}
    found = tls(SSL, STORE, own)
    assert (found.ssl_keystore_location, found.ssl_client_auth) == ("admin.pem", "requested")
    variable = {"RAFTLOG_ADMIN_SSL_KEYSTORE_LOCATION": "env.pem"}
    assert tls(SSL, STORE, environment=variable).ssl_keystore_location == "env.pem"


def test_a_certificate_file_is_enough_for_https() -> None:
    """It uses no other TLS setting of the node: neither a password nor mandatory client certificates."""
    node = {
        "listeners": "SSL://:9092,CONTROLLER://:9093",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": "node.p12",
        "ssl.keystore.password": "hush",
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": "ca.p12",
        "ssl.client.auth": "required",
    }
    short = {"raftlog.admin.ssl.certificate": "chain.pem", "raftlog.admin.ssl.key": "key.pem"}
    config = load(node, short)
    found = config.admin_tls
    assert found is not None
    assert (found.ssl_keystore_type, found.ssl_keystore_location) == ("PEM", "chain.pem")
    assert (found.key_file, found.ssl_client_auth) == ("key.pem", "none")
    assert config.admin_security_protocol == "SSL"
    with raises_faults("raftlog.admin.security.protocol"):
        load(short, {"raftlog.admin.security.protocol": "PLAINTEXT"})


@pytest.mark.parametrize(
    ("flags", "rule"),
    [
        (SSL, "needs a certificate"),
        ({"raftlog.admin.ssl.client.auth": "required"}, "raftlog.admin.security.protocol=SSL"),
        ({**SSL, **STORE, "raftlog.admin.ssl.client.auth": "required"}, "trusted authorities"),
        ({**SSL, **STORE, "raftlog.admin.ssl.client.auth": "perhaps"}, "raftlog.admin.ssl.client.auth"),
        ({**FAR, **SSL, **STORE}, "authorizer.class.name"),
        ({**FAR, **RULES}, "need TLS"),
        ({ADVERTISED: "0.0.0.0:9644"}, f"{ADVERTISED}: must be a host and a port"),
        ({ADVERTISED: "door:0"}, f"{ADVERTISED}: must be a host and a port"),
        ({ADVERTISED: "door:80", "raftlog.admin.listener": ""}, "needs raftlog.admin.listener"),
    ],
)
def test_what_cannot_be_secured_does_not_start(flags: Mapping[str, str], rule: str) -> None:
    """The fault names the setting."""
    with pytest.raises(ConfigFaults, match=rule):
        load(flags)


def test_beyond_loopback_users_and_rules_are_as_good_as_tokens() -> None:
    """With TLS. Over plain HTTP they need an explicit setting."""
    load(FAR, RULES, SSL, STORE)
    told = load(FAR, RULES, {"raftlog.admin.tokens.without.tls": "true"})
    assert "admin_tokens_without_tls" in {each.event for each in told.warnings}


def test_audit_file_is_below_the_working_folder() -> None:
    """As the folders are."""
    config = load_config(flags={"raftlog.audit.file": "logs/audit"}, working_dir="/srv")
    assert config.audit_file == "/srv/logs/audit"
