"""Settings of -X and -F, the addresses of -b, and the errors for wrong values."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from raftlog.cli import exits
from raftlog.cli.client_settings import (
    PRODUCER_SETTINGS,
    addresses_of,
    checked_options,
    dialer_of,
    read_file,
)
from raftlog.cli.exits import Failure
from tests.cli.live import invoke


@pytest.mark.parametrize(
    ("servers", "addresses"),
    [
        ("one:9092", [("one", 9092)]),
        ("one", [("one", 9092)]),
        ("one:19092, two,", [("one", 19092), ("two", 9092)]),
        ("[::1]:19092,[::1]", [("::1", 19092), ("::1", 9092)]),
        ("ssl://one:19092", [("one", 19092)]),
        (",", []),
    ],
)
def test_addresses_are_read_as_librdkafka_reads_them(servers: str, addresses: list[tuple[str, int]]) -> None:
    """Without a port it is 9092; what is empty is passed over."""
    assert addresses_of(servers) == addresses


def test_an_hmac_that_is_no_base64_is_one_line() -> None:
    """The message differs from the message for an unknown token."""
    for proof in ("é", "a b", "abc"):
        code, _, err = invoke("token", "renew", proof, "-b", "localhost:1")
        assert (code, err.splitlines()) == (exits.USAGE, ["raftlog: HMAC: must be base64"])


def test_an_option_must_have_an_effect_on_the_command() -> None:
    """A setting that is silently ignored looks as if it were in force."""
    assert checked_options(["queue.buffering.max.ms=7"], PRODUCER_SETTINGS) == {"linger.ms": "7"}
    for name in ("linger.ms", "socket.timeout.ms", "nothing"):
        with pytest.raises(Failure, match=f"-X {name}: this command only knows bootstrap.servers") as refused:
            checked_options([f"{name}=a secret"], ())
        assert refused.value.code == exits.USAGE and "a secret" not in str(refused.value)
    with pytest.raises(Failure, match=r"^-X linger: there is no such setting; did you mean linger\.ms\?$"):
        checked_options(["linger=3"], PRODUCER_SETTINGS)


def test_a_file_may_serve_other_programs_but_not_with_a_security_setting_that_is_not_known(
    tmp_path: Path,
) -> None:
    """kcat's file is ours; a login that would be another than the file says is refused."""
    file = tmp_path / "client.conf"
    file.write_text("acks=1\nsocket.timeout.ms=5\nsasl.mechanisms=PLAIN\nfetch.max.wait.ms=9\n")
    assert read_file(file) == {"acks": "1", "sasl.mechanisms": "PLAIN", "fetch.wait.max.ms": "9"}
    for line, said in (
        ("sasl.kerberos.service.name=kafka", "sasl.kerberos.service.name: this command only knows"),
        ("ssl.keystore.location=/store.p12", "ssl.keystore.location: only PEM files are read"),
        ("sasl.usrname=u", "sasl.usrname: there is no such setting; did you mean sasl.username"),
        (
            "from raftlog import read",
            "client.conf: from: there is no such setting; such a file has lines of NAME=",
        ),
    ):
        file.write_text(f"{line}\n")
        with pytest.raises(Failure, match=said):
            read_file(file)


def test_a_dialer_believes_certificates_as_the_settings_say() -> None:
    """By default the certificate and the host's name are checked; each check can be turned off."""
    login = {"security.protocol": "sasl_ssl", "sasl.mechanism": "plain"}
    user = {"sasl.username": "u", "sasl.password": "p"}
    strict = dialer_of(login | user)
    assert strict.context is not None and strict.login is not None
    assert strict.context.check_hostname and strict.context.verify_mode is ssl.CERT_REQUIRED
    assert strict.login()[:3] == ("PLAIN", "u", "p")
    any_name = dialer_of({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "none"})
    assert any_name.context is not None and not any_name.context.check_hostname
    nothing = dialer_of({"security.protocol": "SSL", "enable.ssl.certificate.verification": "false"})
    assert nothing.context is not None and nothing.context.verify_mode is ssl.CERT_NONE
    assert dialer_of({}).is_plaintext


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"security.protocol": "tls"}, "security.protocol: must be one of PLAINTEXT"),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"},
            "sasl.mechanism: must be one of PLAIN",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},
            "sasl.username: is required to log in",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"},
            "sasl.oauthbearer.method: must be oidc",
        ),
    ],
)
def test_settings_that_cannot_be_used_are_named(settings: dict[str, str], said: str) -> None:
    """Before any connection is tried."""
    with pytest.raises(Failure, match=said) as refused:
        dialer_of(settings)
    assert refused.value.code == exits.USAGE
