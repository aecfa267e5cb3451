"""Reads schemas by their ids from a schema registry with Confluent's REST API. An id never means another schema."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from raftlog.schemas.registered import RegisteredSchema, read_registered
from raftlog.tables.progress import TableError

__all__ = ["RegisteredSchema", "Registry", "RegistryFailed"]
TIMEOUT_S: Final = 10.0
ATTEMPTS: Final = 8
PAUSE_S: Final = 0.1
"""The first pause between two attempts; it doubles."""
NOT_FOUND: Final = 404
MAX_BYTES: Final = 16 << 20


class RegistryFailed(TableError):
    """The registry does not answer, or refuses to. No record is at fault."""


class Registry:
    """A registry at a URL, which may hold a user and a password. `wait` pauses for a number of seconds."""

    def __init__(self, url: str, wait: Callable[[float], None]) -> None:
        address = urlsplit(url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ValueError(f"--registry {url}: expected http://HOST:PORT")
        self._base = address._replace(netloc=address.netloc.rpartition("@")[2]).geturl().rstrip("/")
        login = f"{unquote(address.username or '')}:{unquote(address.password or '')}"
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if address.username:
            self._headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
        self._wait = wait
        self._known: dict[int, RegisteredSchema | None] = {}

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        """Return the schema of an id, None if there is none. Raise RegistryFailed."""
        if schema_id not in self._known:
            found = self._ask(f"/schemas/ids/{schema_id}")
            self._known[schema_id] = None if found is None else read_registered(found, self._ask)
        return self._known[schema_id]

    def forget_unknown(self) -> None:
        """Look ids up again that were not known: a producer may have registered them since."""
        self._known = {number: schema for number, schema in self._known.items() if schema is not None}

    def _ask(self, path: str) -> Any:
        """Return a response's body, None for 404. Raise RegistryFailed after several attempts."""
        failure = ""
        for number in range(ATTEMPTS):
            if number:
                self._wait(PAUSE_S * 2 ** (number - 1))
            request = urllib.request.Request(self._base + path, headers=self._headers)  # noqa: S310 - checked above
            try:
                with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310 - as above
                    return json.loads(response.read(MAX_BYTES))
            except urllib.error.HTTPError as error:
                if error.code == NOT_FOUND:
                    return None
                failure = f"{error.code} {error.reason}"
                if error.code < 500:
                    break
            except (OSError, ValueError) as error:
                failure = str(getattr(error, "reason", error))
        raise RegistryFailed(f"the schema registry at {self._base} fails: {failure}")
