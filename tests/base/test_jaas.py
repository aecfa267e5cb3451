"""JAAS lines: Kafka's own examples, and what must not pass."""

from __future__ import annotations

import pytest

from raftlog.base.jaas import JaasEntry, UnusableJaas, parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_the_line_of_the_documentation_is_read():
    """Options are read, quoted or not, and the text form hides them. Source: Kafka, "Configuring PLAIN"."""
    line = f'{PLAIN} required username="admin" password="admin-secret" user_admin="admin-secret" user_al="a;=\\"b";'
    entry = parse_jaas(line)
    assert entry.mechanism == "PLAIN"
    assert entry.users == {"admin": "admin-secret", "al": 'a;="b'}
    assert "secret" not in repr(entry)


def test_a_module_needs_no_options():
    """A SCRAM listener's line has none: credentials are in the metadata. Source: Kafka, "Configuring SCRAM"."""
    line = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    assert parse_jaas(line) == JaasEntry("SCRAM", {})


@pytest.mark.parametrize(
    "line",
    [
        "",
        ";",
        f"{PLAIN} required",
        f'{PLAIN} required username="secret-1"',
        f'{PLAIN} username="secret-1";',
        f'{PLAIN} required username="secret-1" password;',
        f'{PLAIN} required username "=" "secret-1";',
        f'{PLAIN} required username="secret-1;',
        f"{PLAIN} required; {PLAIN} required;",
        'com.sun.security.auth.module.JndiLoginModule required user.provider.url="ldap://secret-1";',
    ],
)
def test_other_lines_are_refused_and_not_repeated(line):
    """CVE-2023-25194: a login module chosen by a client is code chosen by a client."""
    with pytest.raises(UnusableJaas) as refused:
        parse_jaas(line)
    assert "secret-1" not in str(refused.value)
