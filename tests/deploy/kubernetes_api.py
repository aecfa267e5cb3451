"""A small client of Kubernetes' API: JSON over HTTPS with a token, server-side apply, and watches."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException, HTTPResponse
from typing import Any, Final

Object = dict[str, Any]

APPLY: Final = "application/apply-patch+yaml"
"""Server-side apply: the server creates the object, or changes what differs. JSON is YAML."""
STRATEGIC_MERGE: Final = "application/strategic-merge-patch+json"
TIMEOUT_S: Final = 60.0


class Refused(Exception):
    """The API server refuses a request. `code` is the HTTP status, `reason` a word of Kubernetes' (TooManyRequests)."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code, self.reason = code, reason


class Api:
    """The API server at a URL, asked as an administrator. Threads can share it."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = url, token
        self._context = ssl._create_unverified_context()  # its certificate is its own, and new in each run

    def ask(
        self, method: str, path: str, body: Object | None = None, kind: str = "application/json"
    ) -> Object:
        """Return the response to a request. Raises Refused, or OSError if there is no server."""
        with self._open(method, path, body, kind, TIMEOUT_S) as response:
            content = response.read()
        return json.loads(content) if content[:1] == b"{" else {}

    def _open(
        self, method: str, path: str, body: Object | None, kind: str, timeout_s: float | None
    ) -> HTTPResponse:
        request = urllib.request.Request(
            self._url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": kind},
        )
        try:
            response: HTTPResponse = urllib.request.urlopen(request, timeout=timeout_s, context=self._context)
        except urllib.error.HTTPError as error:
            with error:
                text = error.read()
            told = json.loads(text) if text[:1] == b"{" else {"message": text.decode(errors="replace")}
            raise Refused(error.code, told.get("reason", ""), told.get("message", "")) from None
        return response

    def get(self, path: str) -> Object:
        return self.ask("GET", path)

    def post(self, path: str, body: Object) -> Object:
        return self.ask("POST", path, body)

    def patch(self, path: str, body: Object) -> Object:
        """Merge a change into an object, with lists by their keys."""
        return self.ask("PATCH", path, body, STRATEGIC_MERGE)

    def apply(self, each: Object, namespace: str) -> None:
        """Create an object, or change it to this, as `kubectl apply --server-side` does. Unknown fields are refused."""
        path = f"{path_of(each, namespace)}?fieldManager=tests&force=true&fieldValidation=Strict"
        self.ask("PATCH", path, each, APPLY)

    def watch(self, path: str) -> Iterator[tuple[str, Object]]:
        """Yield ADDED for each object of a list, and then ADDED, MODIFIED or DELETED for each change.

        It ends with the server.
        """
        try:
            with self._open("GET", f"{path}?watch=true&timeoutSeconds=86400", None, "", None) as lines:
                for line in lines:
                    event = json.loads(line)
                    yield event["type"], event["object"]
        except (OSError, HTTPException):
            return


def path_of(each: Object, namespace: str) -> str:
    """Return the path of an object in a namespace."""
    version, kind = each["apiVersion"], each["kind"].lower()
    group = f"/apis/{version}" if "/" in version else f"/api/{version}"
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    return f"{group}/namespaces/{namespace}/{plural}/{each['metadata']['name']}"
