"""Refusals in words for a person: what the user lacks, or why a server is not believed, instead of a library's code."""

from __future__ import annotations

from typing import Final

_RESOURCES: Final = {
    "topicauthorizationfailed": "topic",
    "groupauthorizationfailed": "group",
    "clusterauthorizationfailed": "cluster",
    "transactionalidauthorizationfailed": "transactional id",
    "delegationtokenauthorizationfailed": "delegation token",
}


def not_authorized(error: str, needs: str = "") -> str | None:
    """Return the refusal, None for another error.

    `error` is its name as any client library writes it; `needs` is the required operation.
    """
    resource = _RESOURCES.get(error.replace("_", "").lower().removesuffix("error"))
    if resource is None:
        return None
    if not needs:
        return f"not authorized: the user lacks a right to the {resource}"
    return f"not authorized: this needs {needs} of the {resource}"
