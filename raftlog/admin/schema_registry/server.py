"""The schema registry's port: the admin API's server with other routes, and the store behind them."""

from __future__ import annotations

import asyncio
from typing import ClassVar, Final

from aiohttp import web

from raftlog.admin.limits import Limits
from raftlog.admin.listener import SCHEMA_DOOR
from raftlog.admin.route import Route
from raftlog.admin.schema_registry import rules, schemas, subjects
from raftlog.admin.schema_registry.answers import MEDIA_TYPE
from raftlog.admin.schema_registry.forwarding import Forwarder
from raftlog.admin.schema_registry.registry import Registry
from raftlog.admin.schema_registry.schema_copy import SchemaCopy
from raftlog.admin.schema_registry.store import SchemaStore
from raftlog.admin.server import AdminServer
from raftlog.admin.view import NodeView
from raftlog.base.schema_log import NoSchemaLog

ROUTES: Final[tuple[Route, ...]] = (*subjects.ROUTES, *schemas.ROUTES, *rules.ROUTES)
INFO: Final = {
    "title": "raftlog schema registry",
    "description": "Keeps the schemas of records in the topic _schemas; any node answers. The routes, types and error "
    "codes are those of Confluent's Schema Registry, so that its clients and serializers work unchanged.",
}


class RegistryServer(AdminServer):
    """Serves clients of a schema registry by the admin API's logins, limits and audit log."""

    door: ClassVar = SCHEMA_DOOR
    info: ClassVar = INFO
    body_types: ClassVar = frozenset(
        {"application/json", MEDIA_TYPE, "application/vnd.schemaregistry+json", "application/octet-stream"}
    )

    _following: asyncio.Task[None] | None = None
    """Applies what is committed to the store."""

    def routes(self) -> tuple[Route, ...]:
        """Return the registry's routes."""
        return ROUTES

    def _add_files(self, app: web.Application) -> None:
        """Add no console."""

    def _start_watching(self) -> None:
        """Follow the store."""
        node = self._node
        self._log = node.schema_log or NoSchemaLog()
        store = SchemaStore(self._log, node, offload=node.offload, now_ms=node.wall_clock_ms)
        node.registry = Registry(store, node.offload, forwarder=Forwarder(node), copy=SchemaCopy(node))
        if node.schema_log is not None:
            self._following = asyncio.get_running_loop().create_task(store.follow())

    async def stop(self) -> None:
        """End all requests, and follow the store no more."""
        await super().stop()
        if self._node.registry is not None:
            self._node.registry.copy.close()
            await self._node.registry.forwarder.close()
            self._log.close()
        if self._following is not None:
            self._following.cancel()


def make_api(node: NodeView, limits: Limits) -> RegistryServer:
    """Return the schema registry of a node."""
    return RegistryServer(node, limits)
