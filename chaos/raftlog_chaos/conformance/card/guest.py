"""A session with a broker that was not started for its histories: it keeps to the versions that the broker serves.

It changes no state that other clients share, and records what it may leave behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import uuid4

from raftlog_chaos.conformance.card.shared_state import shared_state
from raftlog_chaos.conformance.card.versions import Lowered, Versions
from raftlog_chaos.conformance.messages import Message
from raftlog_chaos.conformance.session import Session
from raftlog_chaos.conformance.wire import ANSWER_S, Connection, Dial

FIRST_COORDINATORS: Final = 4
"""The first version of FindCoordinator that finds several."""


THE_SESSIONS_OWN: Final = ("InitProducerId", 4)
"""A version that `Session.init_producer` asks in, and no history means: any will do."""


class ChangesSharedState(Exception):
    """A history wants to change what all clients of the cluster share."""


class Host(NamedTuple):
    """The broker of a card and how it is reached."""

    servers: Sequence[str]
    versions: Versions = Versions({})
    dial: Dial | None = None
    answer_s: float = ANSWER_S
    cluster_wide: bool = False
    topics: frozenset[str] = frozenset()
    """The names of the topics that others use."""


class HostSession(Session):
    """A session with a broker that is reached in its own way; its versions need not be known."""

    def __init__(self, host: Host) -> None:
        super().__init__(host.servers)
        self._host = host

    def _open(self, host: str, port: int) -> Connection:
        return Connection(host, port, dial=self._host.dial, answer_s=self._host.answer_s)


class GuestSession(HostSession):
    """A session of the card. `lowered` has the steps that were asked in an older version, by their indexes."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.lowered: dict[int, Lowered] = {}
        self.created: set[str] = set()

    @property
    def mark(self) -> str:
        """The part of every name that this session made which no other session has."""
        return self._mark

    def send(self, api: str, version: int | None = None, /, **fields: Any) -> None:
        """See Session. Raises NotServed or ChangesSharedState."""
        options = {name: fields.pop(name) for name in ("on", "node", "answered") if name in fields}
        self._check(api, fields)
        key, wanted = self._version(api, version)
        if version is None or (api, version) == THE_SESSIONS_OWN:
            used = self._host.versions.newest(key, wanted)
            if used != wanted:
                self.lowered[len(self.steps)] = lowered = Lowered(key, wanted, used)
                lowered.require_fields(fields)
            version = used
        self._host.versions.require(key, version)
        super().send(api, version, **options, **fields)

    def query(
        self, api: str, version: int | None = None, /, *, node: int | None = None, **fields: Any
    ) -> Message:
        """See Session. Any version will do, for a look is no claim."""
        self._check(api, fields)
        key, wanted = self._version(api, version)
        used = self._host.versions.newest(key, wanted)
        if api == "FindCoordinator" and used < FIRST_COORDINATORS:
            return self._coordinator(used, fields)
        answer = super().query(api, used, node=node, **fields)
        for topic in answer["topics"] if api == "CreateTopics" and used < wanted else ():
            topic.setdefault("topic_id", str(uuid4()))  # older versions return none
            topic.setdefault("error_message", None)
        return answer

    def _coordinator(self, version: int, fields: Mapping[str, Any]) -> Message:
        (key,) = fields["coordinator_keys"]
        found = super().query("FindCoordinator", version, key=key, key_type=fields["key_type"])
        return {"coordinators": [found]}

    def topic(
        self,
        word: str = "topic",
        *,
        partitions: int = 1,
        replicas: int = -1,
        configs: Mapping[str, str | int] | None = None,
    ) -> str:
        """See Session. It has one replica, as it had where Kafka's answers were recorded."""
        return super().topic(
            word, partitions=partitions, replicas=1 if replicas == -1 else replicas, configs=configs
        )

    def _check(self, api: str, fields: Mapping[str, Any]) -> None:
        if api == "CreateTopics":
            self.created |= {str(each.get("name", "")) for each in fields.get("topics") or ()}
        if self._host.cluster_wide:
            return
        what = shared_state(api, fields, mark=self._mark, foreign=self._host.topics)
        if what:
            raise ChangesSharedState(f"it changes {what}")

    def nodes(self) -> Iterator[int]:
        """Yield the ids of all brokers. Raises NotReady."""
        found = self.query("Metadata", 9, topics=[])["brokers"]
        self._nodes |= {each["node_id"]: (each["host"], each["port"]) for each in found}
        yield from sorted(each["node_id"] for each in found)
