"""Reads schemas by their ids from a schema registry with Confluent's REST API. An id never means another schema."""

from __future__ import annotations

import base64
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from raftlog.schemas.errors import SchemaError
from raftlog.schemas.registered import NotARegistry, RegisteredSchema, read_registered, schema_in
from raftlog.tables.progress import TableError

__all__ = ["RegisteredSchema", "Registry", "RegistryFailed", "RegistryUnreachable"]
TIMEOUT_S: Final = 10.0
ATTEMPTS: Final = 8
PAUSE_S: Final = 0.1
"""The first pause between two attempts; it doubles."""
NOT_FOUND: Final = 404
UNUSED_ID: Final = (1 << 31) - 1
"""The last id that registries give. They say that they do not have it, which no other service says."""
MAX_BYTES: Final = 16 << 20


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirect to another address without the login."""

    def redirect_request(self, req: Any, *about: Any) -> urllib.request.Request | None:
        following = super().redirect_request(req, *about)
        if following is not None and urlsplit(following.full_url)[:2] != urlsplit(req.full_url)[:2]:
            following.remove_header("Authorization")
        return following


_OPENER: Final = urllib.request.build_opener(_Redirects)


class RegistryFailed(TableError):
    """The registry does not answer, or refuses to. No record is at fault."""


class RegistryUnreachable(RegistryFailed):
    """No server answers at the address of the registry."""


class Registry:
    """A registry at a URL, which may hold a user and a password. `wait` pauses for a number of seconds."""

    def __init__(self, url: str, wait: Callable[[float], None]) -> None:
        address = urlsplit(url)
        self._base = address._replace(netloc=address.netloc.rpartition("@")[2]).geturl().rstrip("/")
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ValueError(f"--registry {self._base}: expected http://HOST:PORT")
        login = f"{unquote(address.username or '')}:{unquote(address.password or '')}"
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if address.username:
            self._headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
        self._wait = wait
        self._known: dict[int, RegisteredSchema | None] = {}

    def check(self) -> None:
        """Raise RegistryFailed if no schema registry is at the address."""
        self._ask(f"/schemas/ids/{UNUSED_ID}")

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        """Return the schema of an id, None if there is none. Raise RegistryFailed."""
        if schema_id not in self._known:
            found = self._ask(f"/schemas/ids/{schema_id}")
            try:
                self._known[schema_id] = None if found is None else read_registered(found, self._ask)
            except (KeyError, TypeError, ValueError, AttributeError):
                raise RegistryFailed(
                    f"the schema registry at {self._base} fails: the references of schema {schema_id} are none"
                ) from None
            except SchemaError as error:
                raise RegistryFailed(f"schema {schema_id} cannot be used: {error}") from None
        return self._known[schema_id]

    def forget_unknown(self) -> None:
        """Look ids up again that were not known: a producer may have registered them since."""
        self._known = {number: schema for number, schema in self._known.items() if schema is not None}

    def _ask(self, path: str) -> dict[str, Any] | None:
        """Return what is registered, None if the registry says that it does not have it.

        Raise RegistryFailed: at once for what no registry answers, otherwise after several attempts, as
        RegistryUnreachable if the last had no answer.
        """
        failure = silence = ""
        for number in range(ATTEMPTS):
            if number:
                self._wait(PAUSE_S * 2 ** (number - 1))
            try:
                return schema_in(self._body(path), path)
            except NotARegistry as error:
                failure = f"{error}; is --registry the address of a schema registry?"
                break
            except urllib.error.HTTPError as error:
                failure = f"{error.code} {error.reason}"
                if error.code < 500:
                    break
            except (OSError, http.client.HTTPException) as error:
                failure, reason = "", getattr(error, "reason", error)
                silence = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        if not failure:
            raise RegistryUnreachable(
                f"no answer at {self._base} ({silence}); give the address of the schema registry: --registry "
                "http://HOST:PORT"
            )
        raise RegistryFailed(f"the schema registry at {self._base} fails: {failure}")

    def _body(self, path: str) -> Any:
        """Return the body of a response, also if its status is 404. Raise NotARegistry, HTTPError, OSError."""
        request = urllib.request.Request(self._base + path, headers=self._headers)  # noqa: S310 - checked above
        try:
            with _OPENER.open(request, timeout=TIMEOUT_S) as response:
                content = response.read(MAX_BYTES)
        except urllib.error.HTTPError as error:
            if error.code != NOT_FOUND:
                raise
            content = error.read(MAX_BYTES)
        try:
            return json.loads(content)
        except ValueError:
            raise NotARegistry(f"its answer to {path} is not JSON") from None
