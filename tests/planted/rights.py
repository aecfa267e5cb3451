"""Bugs of ACLs and users: kept after removal, lost after creation, revealed without a right."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any

import msgspec
import pytest

from raftlog.base.errors import KafkaError, UnknownTopicOrPartition
from raftlog.base.machine import Decision
from raftlog.broker.handlers import metadata, produce
from raftlog.broker.handlers.fetch import PendingFetch
from raftlog.broker.handlers.shared import fetch_reader
from raftlog.broker.handlers.shared.fetch_reader import FetchReader
from raftlog.broker.network.login import Credentials, Login
from raftlog.controller import acls
from raftlog.coordinator.consumer.topic_regex_resolver import TopicRegexResolver
from raftlog.metadata import loader
from raftlog.metadata.controller_api import DeleteAcls
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.metadata_records import AclRemoved
from raftlog.metadata.snapshot import encode_image
from raftlog.security.acls import Acl
from raftlog.security.authorizer import Authorizer, _RulesOfType
from raftlog_chaos.scenarios.rights import rights
from tests.planted.plant import Plant

# -- taken away, and still in force -------------------------------------------------------------------------------


def answers_outlive_their_rules(patch: pytest.MonkeyPatch) -> None:
    """The authorizer goes on with the answers that it kept."""
    change = Authorizer.change

    def change_and_keep(
        authorizer: Authorizer, *, added: Iterable[Acl] = (), removed: Iterable[Acl] = ()
    ) -> None:
        kept = dict(getattr(authorizer, "_answers", {}))
        change(authorizer, added=added, removed=removed)
        authorizer._answers.update(kept)

    patch.setattr(Authorizer, "change", change_and_keep)


def fetches_that_wait_keep_their_verdict(patch: pytest.MonkeyPatch) -> None:
    """A fetch that waits, and a session, go by the rules of their beginning."""
    may, read = fetch_reader.connection_may, FetchReader._read
    patch.setattr(PendingFetch, "_refuse_revoked", lambda waiting: None)

    def read_as_at_first(reader: FetchReader, entry: Any, *limits: Any, **more: Any) -> Any:
        served_before = entry.partition is not None
        patched = (lambda *which: True) if served_before else may
        fetch_reader.connection_may = patched
        try:
            return read(reader, entry, *limits, **more)
        finally:
            fetch_reader.connection_may = may

    patch.setattr(FetchReader, "_read", read_as_at_first)


def quiet_partitions_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    """A client that waits for records that do not come does not learn of a removed right."""
    patch.setattr(PendingFetch, "_refuse_revoked", lambda waiting: None)


def expressions_match_by_old_rules(patch: pytest.MonkeyPatch) -> None:
    """A group keeps what its expression matched until topics come or go."""
    patch.setattr(Authorizer, "version", lambda authorizer, principal: 0)


def expressions_match_all(patch: pytest.MonkeyPatch) -> None:
    """A group gets every topic that its expression matches, whatever its rights."""
    patch.setattr(TopicRegexResolver, "_may_see", lambda resolver, viewer, name: True)


def _with_users(credentials: Credentials, users: Mapping[tuple[str, str], Any]) -> Credentials:
    image = credentials.image()
    return credentials._replace(image=lambda: msgspec.structs.replace(image, scram=users))


def logins_end_as_they_began(patch: pytest.MonkeyPatch) -> None:
    """A login that stood still ends by the password of its beginning."""
    scram = Login._scram

    def by_what_was(login: Login, message: bytes) -> Any:
        now = login._credentials
        if login._exchange is not None and login._kept is not None:
            exchange: Any = login._exchange
            was = {(exchange._user, login._mechanism): login._kept}
            login._credentials = _with_users(now, was)
        try:
            return scram(login, message)
        finally:
            login._credentials = now

    patch.setattr(Login, "_scram", by_what_was)


def removed_users_are_remembered(patch: pytest.MonkeyPatch) -> None:
    """A broker keeps the credentials that it has once seen in use."""
    find = Login._find
    seen: dict[tuple[int, str, str], Any] = {}

    def find_or_remember(login: Login, user: str, extensions: Mapping[str, str]) -> Any:
        found = find(login, user, extensions)
        key = id(login._logins), user, login._mechanism
        if login._kept is not None:
            seen[key] = found
        elif key in seen:
            login._kept = found = seen[key]
            was = {(user, login._mechanism): found}
            login._credentials = _with_users(login._credentials, was)
        return found

    patch.setattr(Login, "_find", find_or_remember)


# -- given, and lost ----------------------------------------------------------------------------------------------


def one_of_several_takes_all(patch: pytest.MonkeyPatch) -> None:
    """The controller removes all ACLs of the resource if one is removed (CVE-2024-27309)."""

    decide_delete_acls = acls.decide_delete_acls

    def decide(image: MetadataImage, request: DeleteAcls) -> Decision:
        decision = decide_delete_acls(image, request)
        names = {each.acl.resource_name for each in decision.records if isinstance(each, AclRemoved)}
        return decision._replace(
            records=tuple(AclRemoved(each) for each in image.acls if each.resource_name in names)
        )

    patch.setattr(acls, "decide_delete_acls", decide)


def the_authorizer_drops_the_name(patch: pytest.MonkeyPatch) -> None:
    """The metadata is right, but with one rule the authorizer drops all of that name."""
    remove = _RulesOfType.remove

    def remove_all(rules: _RulesOfType, acl: Acl) -> None:
        for each in list(rules._all._named(acl).get(acl.resource_name, {})):
            remove(rules, each)

    patch.setattr(_RulesOfType, "remove", remove_all)


def _snapshots_without(field: str) -> Callable[[pytest.MonkeyPatch], None]:
    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(
            loader, "encode_image", lambda image: encode_image(msgspec.structs.replace(image, **{field: {}}))
        )

    return plant


# -- responses ----------------------------------------------------------------------------------------------------


def unknown_topics_are_called_unknown(patch: pytest.MonkeyPatch) -> None:
    """Metadata refuses what may not be seen only where it is there."""
    denied = metadata._denied

    def denied_if_there(broker: Any, request: Any, image: MetadataImage, asked: Any) -> str | None:
        return denied(broker, request, image, asked) if asked in image.topics else None

    patch.setattr(metadata, "_denied", denied_if_there)


def produce_looks_up_first(patch: pytest.MonkeyPatch) -> None:
    """Produce reveals a missing topic to a client without the right to write."""
    refused = produce.refused_topic

    def refused_if_there(connection: Any, operation: Any, topic: Any) -> str | None:
        is_there = topic in connection.server.broker.image().topics
        return refused(connection, operation, topic) if is_there else None

    patch.setattr(produce, "refused_topic", refused_if_there)


def fetch_looks_up_first(patch: pytest.MonkeyPatch) -> None:
    """Fetch reveals a missing topic to a client without the right to read."""
    refusal = fetch_reader.refusal
    may = fetch_reader.connection_may

    def may_or_absent(connection: Any, operation: Any, topic: Any) -> bool:
        if topic not in connection.server.broker.image().topics:
            raise UnknownTopicOrPartition
        return may(connection, operation, topic)

    assert refusal is not None and issubclass(UnknownTopicOrPartition, KafkaError)
    patch.setattr(fetch_reader, "connection_may", may_or_absent)


def lost_leaders_are_waited_for(patch: pytest.MonkeyPatch) -> None:
    """A question about a topic that may not be seen is answered later if that topic has just lost its leader."""
    news_of, asked_of = metadata._news_of, metadata._asked

    all_asked: ContextVar[Any] = ContextVar("all_asked")

    async def ask_and_note(broker: Any, version: int, message: Any) -> Any:
        found = await asked_of(broker, version, message)
        all_asked.set(found)
        return found

    async def wait_for_all(broker: Any, asked: Any) -> None:
        await news_of(broker, all_asked.get())

    patch.setattr(metadata, "_asked", ask_and_note)
    patch.setattr(metadata, "_news_of", wait_for_all)


PLANTS = [
    Plant("rights-answers-kept", "a stale cache", rights, answers_outlive_their_rules, 5.0),
    Plant("rights-wait-keeps-verdict", "a stale verdict", rights, fetches_that_wait_keep_their_verdict, 5.0),
    Plant("rights-quiet-partitions", "a stale verdict", rights, quiet_partitions_are_not_looked_at, 5.0),
    Plant("rights-old-expression", "a stale match", rights, expressions_match_by_old_rules, 5.0),
    Plant("rights-of-no-expression", "existence told", rights, expressions_match_all, 5.0),
    Plant("rights-login-by-the-past", "a removed user", rights, logins_end_as_they_began, 5.0),
    Plant("rights-user-remembered", "a removed user", rights, removed_users_are_remembered, 5.0),
    Plant("rights-one-takes-all", "CVE-2024-27309", rights, one_of_several_takes_all, 5.0),
    Plant("rights-name-dropped", "CVE-2024-27309", rights, the_authorizer_drops_the_name, 5.0),
    Plant("rights-not-in-snapshot", "a lost rule", rights, _snapshots_without("acls"), 5.0),
    Plant("users-not-in-snapshot", "a lost user", rights, _snapshots_without("scram"), 5.0),
    Plant("unknown-is-not-forbidden", "existence told", rights, unknown_topics_are_called_unknown, 5.0),
    Plant("produce-looks-up-first", "existence told", rights, produce_looks_up_first, 5.0),
    Plant("fetch-looks-up-first", "existence told", rights, fetch_looks_up_first, 5.0),
    Plant("lost-leader-awaited", "existence told by time", rights, lost_leaders_are_waited_for, 5.0),
]
