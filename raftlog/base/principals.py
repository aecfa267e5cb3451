"""Principals: the identity of a connection, as `Type:name`, and the mapping from certificates' names.

The rules are Kafka's `ssl.principal.mapping.rules`: `RULE:pattern/replacement/[LU]` and `DEFAULT`, tried in order; the
first pattern that is the whole name decides. Patterns are regular expressions of RE2 where it is installed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

USER: Final = "User"

_RULE: Final = re.compile(
    r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*", re.IGNORECASE
)
"""One rule. A slash within pattern or replacement has a backslash before it."""

_GROUP: Final = re.compile(r"\$(\d+)")


class UnusableRules(ValueError):
    """Rules that cannot be read; the message names the rule."""


class NoPrincipal(ValueError):
    """A valid certificate that maps to no principal; the message says why."""


class MappingRule(NamedTuple):
    """One rule; without a pattern it is DEFAULT."""

    pattern: str | None
    replacement: str = ""
    case: str = ""


def parse_principal(text: str) -> str:
    """Return a `Type:name` unchanged. Raise ValueError without a type or a name."""
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise ValueError(f"a principal is Type:name, such as User:alice, but this is {text!r}")
    return text


def parse_super_users(text: str) -> tuple[str, ...]:
    """Read `User:alice;User:CN=bob,O=here`: semicolons, because names of certificates have commas."""
    return tuple(parse_principal(each.strip()) for each in text.split(";") if each.strip())


def parse_rules(text: str) -> tuple[MappingRule, ...]:
    """Read comma-separated rules. Raise UnusableRules."""
    rules, position = [], 0
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None or (match.end() < len(text) and text[match.end()] != ","):
            raise UnusableRules(
                f"must be DEFAULT or RULE:pattern/replacement/[LU], but is {text[position:]!r}"
            )
        default, pattern, replacement, case = match.groups()
        rules.append(
            MappingRule(None) if default else MappingRule(_plain(pattern), _plain(replacement), case.upper())
        )
        position = match.end() + 1
    return tuple(rules) or (MappingRule(None),)


def name_of(
    certificate_name: str,
    rules: tuple[MappingRule, ...],
    fullmatch: Callable[[str, str], re.Match[str] | None] = re.fullmatch,
) -> str | None:
    """Return the user name of a certificate's subject, or None where no rule fits: the connection must be refused
    then.
    """
    for rule in rules:
        if rule.pattern is None:
            return certificate_name
        match = fullmatch(rule.pattern, certificate_name)
        if match is not None:
            name = _filled(rule.replacement, match)
            return name.lower() if rule.case == "L" else name.upper() if rule.case == "U" else name
    return None


def _filled(replacement: str, match: re.Match[str]) -> str:
    return _GROUP.sub(lambda group: match[int(group[1])] or "", replacement)


def _plain(text: str) -> str:
    return text.replace("\\/", "/")
