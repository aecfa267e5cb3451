"""Logins and TLS: settings as Java's clients have them made librdkafka's and back, and secrets kept out of sight.

Both connectors take the login that the other one takes: a job reads by either, and asks for offsets by librdkafka.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

HIDDEN: Final = "[hidden]"
SECRET: Final = re.compile(
    r".*(password|passphrase|secret|token|jaas|credential).*|ssl\.key(store)?\.(pem|key)"
)
"""Names of settings with hidden values."""

_TEXTS: Final = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
"""Java's names of PEM texts and files, and librdkafka's."""
_JAVA_TEXTS: Final = {ours: java for java, ours in _TEXTS.items()}
_FILES: Final = {
    "ssl.ca.location": "ssl.ca.pem",
    "ssl.certificate.location": "ssl.certificate.pem",
    "ssl.key.location": "ssl.key.pem",
    "ssl.truststore.location": "ssl.truststore.certificates",
}
"""Settings that name a file, and the settings with its text."""
_JAAS: Final = re.compile(r'\s*([\w.]+)\s+required((?:\s+\w+="(?:[^"\\]|\\.)*")*)\s*;\s*')
_JAAS_OPTION: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_MODULES: Final = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": "PLAIN",
    "org.apache.kafka.common.security.scram.ScramLoginModule": "SCRAM",
}


class ClientSettings(dict[str, str]):
    """Settings of a client; their text has no secret in it."""

    def __repr__(self) -> str:
        return repr({name: HIDDEN if SECRET.fullmatch(name) else value for name, value in self.items()})


def redacted(text: str, settings: Mapping[str, object]) -> str:
    """Return a text without the secrets among some settings."""
    for name, value in settings.items():
        if value and SECRET.fullmatch(name):
            text = text.replace(str(value), HIDDEN)
    return text


def for_librdkafka(settings: Mapping[str, str]) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Return settings with Java's names of the login and of PEM texts made librdkafka's, and (name, fault) pairs."""
    found, faults = dict(settings), list[tuple[str, str]]()
    for store in ("ssl.truststore", "ssl.keystore"):
        if f"{store}.type" in found and found.pop(f"{store}.type").upper() != "PEM":
            faults.append((f"{store}.type", "only PEM is known here"))
    for java, ours in _TEXTS.items():
        if java in found:
            found[ours] = found.pop(java)
    if (jaas := found.pop("sasl.jaas.config", None)) is not None:
        try:
            found |= _login_of(jaas, found.get("sasl.mechanism", found.get("sasl.mechanisms", "")))
        except ValueError as error:
            faults.append(("sasl.jaas.config", str(error)))
    return found, faults


def _login_of(jaas: str, mechanism: str) -> dict[str, str]:
    """Return the user and the password of a line of JAAS. Raises ValueError, which does not quote it."""
    parts = _JAAS.fullmatch(jaas)
    if parts is None or parts[1] not in _MODULES:
        raise ValueError('is not: PlainLoginModule or ScramLoginModule required username="…" password="…";')
    if not mechanism.upper().startswith(_MODULES[parts[1]]):
        raise ValueError(f"{parts[1]} does not match sasl.mechanism={mechanism or 'nothing'}")
    options = {name: re.sub(r"\\(.)", r"\1", value) for name, value in _JAAS_OPTION.findall(parts[2])}
    if options.keys() != {"username", "password"}:
        raise ValueError("must have exactly the options username and password")
    return {"sasl.username": options["username"], "sasl.password": options["password"]}


def for_java(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings with librdkafka's names of the login and of PEM texts made Java's."""
    found = {_JAVA_TEXTS.get(name, name): value for name, value in settings.items()}
    if "sasl.mechanisms" in found:
        found["sasl.mechanism"] = found.pop("sasl.mechanisms")
    if "sasl.username" in found:
        user, password = (_quoted(found.pop(name, "")) for name in ("sasl.username", "sasl.password"))
        kind = "PLAIN" if found.get("sasl.mechanism", "").upper() == "PLAIN" else "SCRAM"
        module = next(module for module, name in _MODULES.items() if name == kind)
        found["sasl.jaas.config"] = f"{module} required username={user} password={password};"
    for store, names in (
        ("ssl.truststore", ("ssl.truststore.certificates",)),
        ("ssl.keystore", ("ssl.keystore.key",)),
    ):
        if any(name in found for name in names):
            found[f"{store}.type"] = "PEM"
    return found


def _quoted(text: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def with_texts(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings with the texts of PEM files in place of their names. Raises OSError, ValueError.

    Executors need no such file then. A truststore of another type stays a file.
    """
    found = dict(settings)
    for name, text in _FILES.items():
        is_pem = "truststore" not in name or found.get("ssl.truststore.type", "").upper() == "PEM"
        if name in found and is_pem:
            found[text] = Path(found.pop(name)).read_text()
    return found


class Refused(RuntimeError):
    """The cluster does not let this user in, or not do this; trying again does not mend it."""


DENIED: Final = frozenset({"TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"})
HOPELESS: Final = frozenset({"_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED"})
"""librdkafka's errors of a connection that come again with every attempt."""
PATIENT_FOR: Final = 5
"""Logins that may fail in a row: a new user is not known to every broker at once."""


def who(settings: Mapping[str, object]) -> str:
    """Return how to name the user of a client."""
    name = settings.get("sasl.username")
    return f"user {name}" if name else "this client's user"


class Door:
    """The error callback of a client: it counts the logins and handshakes that failed since the cluster answered."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self._failures = 0
        self._reason = ""

    def __call__(self, error: object) -> None:
        if error.name() in HOPELESS:  # type: ignore[attr-defined]
            self._failures += 1
            self._reason = error.str()  # type: ignore[attr-defined]

    def passed(self) -> None:
        """Forget what failed: the cluster answers, so this user is let in."""
        self._failures = 0

    def check(self) -> None:
        """Raise Refused, with user, server and reason, if logins keep failing."""
        if self._failures >= PATIENT_FOR:
            servers = self._settings["bootstrap.servers"]
            said = f"{servers} does not let {who(self._settings)} in: {self._reason}"
            raise Refused(redacted(said, self._settings))


def denied(settings: Mapping[str, object], doing: str, topics: Iterable[str]) -> Refused:
    """Return the error of a user without authorization to read, write or create topics."""
    names = ", ".join(sorted(set(topics)))
    right = {"read": "READ (and DESCRIBE)", "write": "WRITE (and DESCRIBE)", "create": "CREATE"}[doing]
    return Refused(f"{who(settings)} may not {doing} topic {names}: this needs the right {right} on it")
