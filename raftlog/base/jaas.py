"""JAAS lines, as Kafka's `sasl.jaas.config` has them: `Module required key="value" ... ;`.

Only Kafka's own three login modules are known. Any other module could be code of an attacker's choice, so it is refused
(CVE-2023-25194 and its successors).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

_MODULES: Final[Mapping[str, str]] = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": "PLAIN",
    "org.apache.kafka.common.security.scram.ScramLoginModule": "SCRAM",
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": "OAUTHBEARER",
}

_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_TOKEN: Final = re.compile(r'\s*(?:"((?:\\.|[^"\\])*)"|([^\s="\\;]+)|([=;]))', re.DOTALL)


class UnusableJaas(ValueError):
    """A line that cannot be read. The message never quotes it: it contains passwords."""


class JaasEntry(NamedTuple):
    """The module's mechanism, and its options."""

    mechanism: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"JaasEntry({self.mechanism!r})"

    @property
    def users(self) -> dict[str, str]:
        """The passwords by user of a PLAIN listener: the options `user_NAME="password"`."""
        return {
            name.removeprefix("user_"): password
            for name, password in self.options.items()
            if name.startswith("user_")
        }


def parse_jaas(text: str) -> JaasEntry:
    """Read one line. Raise UnusableJaas."""
    words, signs = _split(text)
    if len(words) < len(("module", "flag")) or signs[:2] != ["", ""]:
        raise UnusableJaas("must begin with a login module and `required`")
    mechanism = _MODULES.get(words[0])
    if mechanism is None:
        raise UnusableJaas(f"the login module must be one of {', '.join(_MODULES)}")
    if words[1].lower() not in _FLAGS:
        raise UnusableJaas("the login module must be followed by `required`")
    count, rest = divmod(len(words) - 3, 3)
    if rest or signs[2:] != ["", "=", ""] * count + [";"]:
        raise UnusableJaas('options are key="value", and a semicolon ends the line')
    return JaasEntry(mechanism, dict(zip(words[2:-1:3], words[4:-1:3], strict=True)))


def _split(text: str) -> tuple[list[str], list[str]]:
    """Return the words and, in their places, the signs `=` and `;`, which are signs only without quotes."""
    words, signs, position = [], [], 0
    text = text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise UnusableJaas(
                f'must have the form Module required key="value"; but does not at character {position + 1}'
            )
        quoted, word, sign = match.groups()
        words.append(word or "" if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        signs.append(sign or "")
        position = match.end()
    return words, signs
