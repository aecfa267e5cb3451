"""Names of certificates and lists of super users, as Kafka's documentation has them."""

from __future__ import annotations

import pytest

from raftlog.base.principals import (
    UnusableRules,
    name_of,
    parse_principal,
    parse_rules,
    parse_super_users,
)

RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT"
)


@pytest.mark.parametrize(
    ("certificate", "user"),
    [
        ("CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "serviceuser"),
        ("CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "adminuser@admin"),
        ("cn=User1,O=x", "user1"),
        ("O=only", "O=only"),
    ],
)
def test_the_first_rule_that_fits_decides(certificate, user):
    """Source: Kafka, ssl.principal.mapping.rules, with the documentation's own rules."""
    assert name_of(certificate, parse_rules(RULES)) == user


def test_without_a_rule_that_fits_there_is_no_user():
    """Without DEFAULT at the end a certificate may map to no user."""
    assert name_of("O=x", parse_rules("RULE:^CN=(.*)$/$1/U")) is None
    assert name_of("CN=x", parse_rules("RULE:^CN=(.*)$/$1/U")) == "X"


def test_a_slash_has_a_backslash():
    """Within pattern and replacement. Source: Kafka, ssl.principal.mapping.rules."""
    assert name_of("CN=a/b", parse_rules(r"RULE:^CN=(.*)\/(.*)$/$2\/$1/")) == "b/a"


def test_no_rules_are_the_default_one():
    """An empty setting takes the whole name of the certificate."""
    assert name_of("CN=x", parse_rules("")) == "CN=x"


@pytest.mark.parametrize("text", ["RULE:a/b", "DEFAULT;DEFAULT", "RULE:^a$/b/X", "nonsense"])
def test_rules_that_are_none_are_refused(text):
    """A mistake is a fault at the start, not a rule that never fits."""
    with pytest.raises(UnusableRules):
        parse_rules(text)


def test_super_users_are_parted_by_semicolons():
    """Names of certificates have commas. Source: Kafka, super.users."""
    assert parse_super_users("User:admin; User:CN=a,O=b;") == ("User:admin", "User:CN=a,O=b")
    with pytest.raises(ValueError, match="Type:name"):
        parse_super_users("admin")
    with pytest.raises(ValueError, match="Type:name"):
        parse_principal("User:")
