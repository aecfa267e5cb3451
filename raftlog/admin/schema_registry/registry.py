"""The registry of one node: its questions and changes, with parsing and comparing in a thread, one at a time."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from raftlog.admin.schema_registry.forwarding import Forwarder
from raftlog.admin.schema_registry.schema_copy import SchemaCopy
from raftlog.admin.schema_registry.store import SchemaStore
from raftlog.base.env import Offload
from raftlog.schemas.compatibility import compared_with, differences
from raftlog.schemas.decisions import (
    Change,
    Registration,
    decide_registration,
    needs_check,
    registered,
)
from raftlog.schemas.errors import INCOMPATIBLE, STORE_TIMED_OUT, SchemaError
from raftlog.schemas.formats import demand_package, format_of, identity, serialized_text
from raftlog.schemas.metadata import completed
from raftlog.schemas.proto_descriptors import descriptor_of
from raftlog.schemas.registry_state import Identified, RegistryState, Version
from raftlog.schemas.schema import Schema

T = TypeVar("T")
PARSED_CHARS: Final = 500_000
"""The characters of the schemas whose parsed form is kept for the next comparison. It takes some fifty bytes each."""
MOST_MESSAGES: Final = 20
SERIALIZED: Final = "serialized"
COMPARISON_S: Final = 10.0
"""Longest time that comparing a new schema may take."""
THREAD_WAIT_S: Final = 10.0
"""Longest wait for the work of other requests."""


class Registry:
    """Answers from the state of `store`; only the leader's is current."""

    def __init__(
        self, store: SchemaStore, offload: Offload, *, forwarder: Forwarder, copy: SchemaCopy
    ) -> None:
        self.store = store
        self.forwarder = forwarder
        self.copy = copy
        """The schemas for a node whose `store` has no replica; only payloads are read by it."""
        self._offload = offload
        self._thread = asyncio.Lock()
        """Held while a thread works for a client: the other threads are for the disk."""
        self._clients: WeakValueDictionary[tuple[str, str, bool], asyncio.Lock] = WeakValueDictionary()
        """A lock for each client with a schema in work."""
        self._parsed: OrderedDict[bytes, _Parsed] = OrderedDict()
        """Parsed schemas by identity, the least recently used first."""

    async def prepare(self, schema: Schema, *, normalize: bool) -> tuple[Schema, bytes]:
        """Return a schema of a client as it is stored, and its identity. Raises SchemaError, NotLeading.

        Only the leader does this work, once a request: each attempt of another node ends here.
        """
        self.store.demand_lead()
        demand_package(schema.kind)
        return await self.in_thread(lambda: _prepared(schema, normalize=normalize))

    async def register(self, given: Registration) -> Version:
        """Return the version that the schema has in its subject, new or not. Raises SchemaError, NotLeading.

        The thread works before the change's turn, so that other changes go on meanwhile. In the turn it works only if
        the versions of the subject, or what the schema takes over from them, have changed since.
        """
        state = await self.store.current()
        first = await self._identified(given, completed(state, given))
        found = registered(state, first)
        if found is not None:
            return found
        compared = _Compared()
        try:
            async with asyncio.timeout(COMPARISON_S):
                await self.parse(state, Identified(first.schema, first.identity))
                await self._demand_compatibility(state, first, compared)
        except TimeoutError:
            raise SchemaError(
                STORE_TIMED_OUT,
                f"comparing it with the versions of its subject takes more than {COMPARISON_S:.0f} s",
            ) from None

        async def decide(newest: RegistryState) -> Change:
            schema = completed(newest, given)
            wanted = first if schema == first.schema else await self._identified(given, schema)
            await self._demand_compatibility(newest, wanted, compared)
            return decide_registration(newest, wanted)

        written: Version = await self.store.change(decide)
        return written

    async def _identified(self, given: Registration, schema: Schema) -> Registration:
        """Return a registration of the given schema after `completed`, with the identity of the result."""
        was_given = (given.schema.metadata or None, given.schema.rule_set or None)
        if (schema.metadata, schema.rule_set) == was_given:
            return given._replace(schema=schema)
        return given._replace(schema=schema, identity=await self.in_thread(lambda: identity(schema)))

    async def _demand_compatibility(
        self, state: RegistryState, wanted: Registration, compared: _Compared
    ) -> None:
        """Raise SchemaError for an incompatible schema. Versions in `compared` are not compared again."""
        if not needs_check(state, wanted):
            return
        subject = wanted.subject
        if compared.level != state.level(subject):
            compared.level, compared.ids = state.level(subject), set()
        versions = compared_with(compared.level, state.versions(subject))
        left = [each for each in versions if each.id not in compared.ids]
        if not left:
            return
        new = Identified(wanted.schema, wanted.identity)
        messages = await self.compare(state, subject, new, left[::-1])
        compared.ids |= {each.id for each in left}
        if messages:
            raise SchemaError(
                INCOMPATIBLE,
                f"the schema is incompatible with an earlier version of subject '{subject}' "
                f"(compatibility {state.level(subject)}): {'; '.join(messages)}",
            )

    async def change(self, decide: Callable[..., Change], *arguments: Any, **options: Any) -> Any:
        """Make a change by a decision. Raises SchemaError, NotLeading."""

        async def later(state: RegistryState) -> Change:
            return decide(state, *arguments, **options)

        return await self.store.change(later)

    async def compare(
        self, state: RegistryState, subject: str, new: Identified, versions: Sequence[Version]
    ) -> list[str]:
        """Return why a schema is incompatible with earlier versions at the level of a subject. Raises SchemaError.

        A version may be deleted permanently while a thread works: it is compared all the same.
        """
        level, kind = state.level(subject), new.schema.kind
        earlier = [(each.version, state.ids[each.id]) for each in compared_with(level, versions)]
        await self.parse(state, new)
        found: list[str] = []
        for version, old in earlier:
            if old.schema.kind != kind:
                found.append(f"version {version} is of type {old.schema.kind}, and not {kind}")
                continue
            parsed = await self.parse(state, new), await self.parse(state, old)
            compare = format_of(kind).incompatibilities
            found += await self.in_thread(partial(differences, level, *parsed, compare))
            if len(found) >= MOST_MESSAGES:
                break
        return found[:MOST_MESSAGES]

    async def parse(self, state: RegistryState, wanted: Identified) -> Any:
        """Return a parsed schema. Raises SchemaError."""
        schema = wanted.schema
        demand_package(schema.kind)
        found = self._parsed.pop(wanted.identity, None)
        if found is None:
            named = state.named(schema.references)
            work = partial(format_of(schema.kind).parse, schema.text, named)
            found = _Parsed(
                await self.in_thread(work), len(schema.text) + sum(len(each.text) for each in named)
            )
        self._parsed[wanted.identity] = found
        while sum(each.chars for each in self._parsed.values()) > PARSED_CHARS:
            self._parsed.popitem(last=False)
        return found.schema

    async def formatted(self, state: RegistryState, wanted: Identified, format: str) -> Identified:
        """Return a schema with its text in a format that a client asks for. Raises SchemaError.

        SERIALIZED is a Protobuf descriptor in base64. Any other format is the text as it is stored.
        """
        schema = wanted.schema
        if format != SERIALIZED or schema.kind != "PROTOBUF" or descriptor_of(schema.text) is not None:
            return wanted
        demand_package(schema.kind)
        named = tuple(state.named(schema.references))
        text = await self.in_thread(lambda: serialized_text(schema.text, named))
        return wanted._replace(schema=schema._replace(text=text))

    @asynccontextmanager
    async def turn_of(self, client: tuple[str, str, bool]) -> AsyncIterator[None]:
        """Wait until no other schema of this client is in work, so that other clients wait for one of its schemas only.

        `client`: address, principal, and whether another node forwards for it. Raises SchemaError 50002 after
        THREAD_WAIT_S.
        """
        lock = self._clients.setdefault(client, asyncio.Lock())
        await _acquired(lock)
        try:
            yield
        finally:
            lock.release()

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Return what `work` returns in a thread. Raise SchemaError 50002 if others keep it for too long.

        The caller may be cancelled, the work may not: then the next waits for its end all the same.
        """
        await _acquired(self._thread)
        return await asyncio.shield(self._run(work))

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await self._offload(work)
        finally:
            self._thread.release()


class _Compared:
    """The ids of the schemas that a schema is compatible with, at a level."""

    def __init__(self) -> None:
        self.level = ""
        self.ids: set[int] = set()


class _Parsed(NamedTuple):
    schema: Any
    chars: int


async def _acquired(lock: asyncio.Lock) -> None:
    """Acquire a lock. Raises SchemaError 50002."""
    try:
        async with asyncio.timeout(THREAD_WAIT_S):
            await lock.acquire()
    except TimeoutError:
        raise SchemaError(
            STORE_TIMED_OUT, f"other schemas have kept this node busy for {THREAD_WAIT_S:.0f} s; retry"
        ) from None


def _prepared(schema: Schema, *, normalize: bool) -> tuple[Schema, bytes]:
    kind = format_of(schema.kind)
    stored = schema._replace(text=kind.stored_text(schema.text))
    if normalize:
        stored = stored._replace(text=kind.canonical(schema.text))
    return stored, identity(stored)
