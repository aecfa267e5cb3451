"""The vocabulary of histories: one session with a broker, in which every question and answer is observed.

`ask` sends any request in any version; the other methods are short for some of them. `look` and `topic` are not
observed: they serve the history, and are no claim about the broker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from secrets import token_hex
from typing import Any, Final, Protocol

from raftlog.protocol.apis import APIS
from raftlog.records.batch import Record, new_record
from raftlog.testing.progress import patient
from raftlog_chaos.conformance import batches
from raftlog_chaos.conformance.messages import Message, api_key, as_message, build_request
from raftlog_chaos.conformance.observation import START_BEFORE_MS, Normaliser, Step
from raftlog_chaos.conformance.wire import Closed, Connection, Silent, Undecodable

BY_NAME: Final = {"Produce": 12, "Fetch": 12, "OffsetCommit": 9, "OffsetFetch": 9}
"""The newest version that names topics, of APIs in which newer versions have topic ids only."""
WAIT_S: Final = 60.0
PAUSE_S: Final = 0.02
FETCH_BYTES: Final = 1 << 20
TIMEOUT_MS: Final = 10_000
_NEWS: Final = ("LEADER_NOT_AVAILABLE", "NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION")

Value = bytes | None | Record


class World(Protocol):
    """The nodes of a broker that the harness started, to be hurt. Nodes count from 1."""

    def kill(self, node: int) -> None:
        """Kill -9 a node."""

    def pause(self, node: int) -> None:
        """Stop a node in its tracks."""

    def resume(self, node: int) -> None:
        """Let a paused node go on."""

    def restart(self) -> float:
        """Start all nodes that do not run, and wait until they take part."""


class NotReady(Exception):
    """The broker did not do what a history needs before it can begin."""


class Session:
    """One history's session with a broker. `steps` is what it observed."""

    def __init__(self, servers: Sequence[str], *, world: World | None = None) -> None:
        self.servers = list(servers)
        self.start_ms = int(time.time() * 1000) - START_BEFORE_MS
        self.steps: list[Step] = []
        self._world = world
        self._normal = Normaliser(self.start_ms)
        self._mark = token_hex(4)
        self._connections: dict[tuple[str, int | None], Connection] = {}
        self._nodes: dict[int, tuple[str, int]] = {}
        self._leaders: dict[tuple[str, int], int] = {}
        self._topics: dict[str, int] = {}
        self._at_end: list[Callable[[], object]] = []
        self._ids: dict[str, str] = {}
        self._sent: list[tuple[str, int | None, str, int]] = []

    # --- asking

    def ask(
        self, api: str, version: int | None = None, /, *, on: str = "", node: int | None = None, **fields: Any
    ) -> Message:
        """Send a request and return its answer, both observed; {} if the broker closed the connection or kept silent.

        `on` names a connection, which is opened at its first use. `node` is a node's id; without it the request goes to
        the first address. `fields` are named as in Kafka's schema, nested fields as dicts and lists.
        """
        self.send(api, version, on=on, node=node, **fields)
        return self.receive(on=on, node=node)

    def send(
        self,
        api: str,
        version: int | None = None,
        /,
        *,
        on: str = "",
        node: int | None = None,
        answered: bool = True,
        **fields: Any,
    ) -> None:
        """Send a request for `receive` to read its answer later, if it is `answered`: Produce with acks=0 is not."""
        key, number = self._version(api, version)
        message = build_request(key, number, fields)
        shown = self._normal.asked(as_message(message, omit_defaults=True))
        self._note(f"{api} v{number}{f' on {on}' if on else ''}", shown, None)
        try:
            self._connection(on, node).send(key, number, message)
        except (Closed, OSError):
            pass  # `receive` will say so
        if answered:
            self._sent.append((on, node, api, number))

    def receive(self, *, on: str = "", node: int | None = None) -> Message:
        """Return the answer to the earliest request on a connection that has none; {} as `ask` does."""
        at = next(number for number, each in enumerate(self._sent) if each[:2] == (on, node))
        _, _, api, version = self._sent.pop(at)
        full, shown = self._answer(on, node, api, version)
        last = self.steps[-1]
        if last.answer is None and last.asked.startswith(f"{api} v{version}"):
            self.steps[-1] = last._replace(answer=shown)
        else:
            self._note(f"answer to {api} v{version}{f' on {on}' if on else ''}", None, shown)
        return full

    def _answer(self, on: str, node: int | None, api: str, version: int) -> tuple[Message, Any]:
        try:
            answer = self._connection(on, node).receive(api_key(api), version)
        except (Closed, Silent, Undecodable) as error:
            self._hang_up(on, node)
            return {}, error.text
        except OSError:
            return {}, "no connection"
        return as_message(answer), self._normal.answered(as_message(answer, omit_defaults=True))

    def has_answer(self, *, on: str = "", node: int | None = None) -> bool:
        """Return whether `receive` will return at once: an answer has begun to come, or the connection is closed."""
        try:
            return self._connection(on, node).has_answer()
        except OSError:
            return True

    def ask_bytes(self, frame: bytes, what: str, *, on: str = "") -> bytes:
        """Send bytes as they are, and return the next frame without its length; b"" as `ask` does for {}."""
        try:
            connection = self._connection(on, None)
            connection.send_bytes(frame)
            answer = connection.receive_bytes()
        except (Closed, Silent) as error:
            self._hang_up(on, None)
            self._note(what, None, error.text)
            return b""
        self._note(what, None, {"frame": batches.text(answer)})
        return answer

    def query(
        self, api: str, version: int | None = None, /, *, node: int | None = None, **fields: Any
    ) -> Message:
        """Send a request and return its answer without observing it. Raises NotReady if none comes."""
        key, number = self._version(api, version)
        connection = self._connection("look", node)
        try:
            connection.send(key, number, build_request(key, number, fields))
            return as_message(connection.receive(key, number))
        except (Closed, Silent, Undecodable) as error:
            self._hang_up("look", node)
            raise NotReady(f"{api} v{number}: {type(error).__name__}") from None

    def wait(self, what: str, holds: Callable[[], object], *, within_s: float = WAIT_S) -> None:
        """Look until `holds()`, and observe that it came, or that it did not come in time."""
        came = self._comes(holds, within_s)
        self._note(f"wait until {what}", None, "it came" if came else f"not within {within_s:.0f} s")

    def expect(self, what: str, holds: Callable[[], object]) -> None:
        """Look until `holds()`, without observing it. Raises NotReady if it does not come."""
        if not self._comes(holds, WAIT_S):
            raise NotReady(f"not within {WAIT_S:.0f} s: {what}")

    def observe(self, what: str, value: Any) -> None:
        """Observe any plain data, such as what a stock client returned."""
        self._note(what, None, self._normal.answered(value))

    def remark(self, text: str) -> None:
        """Say more about the last question, for the list of known differences."""
        self.steps[-1] = self.steps[-1]._replace(asked=f"{self.steps[-1].asked} {text}")

    # --- names and times

    def name(self, word: str) -> str:
        """Return a name that no other history has, shown as `word`."""
        made = f"{word}-{self._mark}"
        self._normal.add_name(made, word)
        return made

    def call(self, made_up: str, shown: str) -> None:
        """Show an id that the broker made up as a word, where its first answer with it is left to chance."""
        self._normal.add_name(made_up, shown)

    def at(self, after_ms: int = 0) -> int:
        """Return a time in milliseconds, about two minutes before the history began, plus `after_ms`."""
        return self.start_ms + after_ms

    def topic(
        self,
        word: str = "topic",
        *,
        partitions: int = 1,
        replicas: int = -1,
        configs: Mapping[str, str | int] | None = None,
    ) -> str:
        """Create a topic and return its name. Raises NotReady."""
        name = self.name(word)
        wanted = [{"name": key, "value": str(value)} for key, value in (configs or {}).items()]
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": replicas,
            "configs": wanted,
        }
        answer = self.query("CreateTopics", 7, topics=[topic], timeout=TIMEOUT_MS)["topics"][0]
        if answer["error_code"] != "NONE":
            raise NotReady(f"CreateTopics: {answer['error_code']}: {answer['error_message']}")
        self._topics[name] = partitions
        self._ids[name] = answer["topic_id"]
        self._normal.add_name(answer["topic_id"], f"{word}-id")
        self._find_leaders(name)
        return name

    def grown(self, name: str, partitions: int) -> None:
        """Wait until a topic has that many partitions, each with a leader. Raises NotReady."""
        self._topics[name] = partitions
        self._find_leaders(name)

    def has_topic(self, name: str) -> bool:
        """Return whether this session made a topic."""
        return name in self._ids

    def topic_id(self, name: str) -> str:
        """Return the id of a topic that this session made."""
        return self._ids[name]

    def at_end(self, tidy: Callable[[], object]) -> None:
        """Have `tidy` called when the history has ended, the latest first. It may raise NotReady."""
        self._at_end.append(tidy)

    # --- what most histories ask

    def batch(self, *values: Value, codec: int = 0, **header: int) -> bytes:
        """Return a record batch. Records are 1 ms apart unless they are given whole.

        `header` replaces fields of its header (`batches.FIELDS`); the CRC fits, unless it is given.
        """
        records = [
            each if isinstance(each, Record) else new_record(None, each, timestamp=self.at(number))
            for number, each in enumerate(values)
        ]
        return batches.build(records, codec=codec, **header)

    def produce(
        self,
        topic: str,
        records: bytes | None,
        *,
        version: int | None = None,
        partition: int = 0,
        acks: int = -1,
        transactional_id: str | None = None,
    ) -> Message:
        """Send a batch to its leader and return the answer for the partition; {} where none came."""
        data = [{"index": partition, "records": records}]
        answer = self.ask(
            "Produce",
            version,
            node=self.leader(topic, partition),
            transactional_id=transactional_id,
            acks=acks,
            timeout=TIMEOUT_MS,
            topic_data=[{"name": topic, "topic_id": self._ids.get(topic), "partition_data": data}],
        )
        return _first(answer, "responses", "partition_responses")

    def fetch(
        self, topic: str, offset: int = 0, *, version: int | None = None, partition: int = 0, **fields: Any
    ) -> Message:
        """Fetch from a partition's leader and return the answer for the partition. `fields` are the request's."""
        wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": FETCH_BYTES}
        given = {"max_wait": 0, "min_bytes": 0, "max_bytes": FETCH_BYTES} | fields
        answer = self.ask(
            "Fetch",
            version,
            node=self.leader(topic, partition),
            topics=[{"topic": topic, "topic_id": self._ids.get(topic), "partitions": [wanted]}],
            **given,
        )
        return _first(answer, "responses", "partitions")

    def read(self, topic: str, offset: int = 0, *, partition: int = 0, isolation: int = 0) -> bytes:
        """Fetch from an offset to the end, and observe the batches as one answer, however many fetches it takes."""
        found = bytearray()
        while True:
            wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": FETCH_BYTES}
            answer = self.query(
                "Fetch",
                12,
                node=self.leader(topic, partition),
                max_wait=0,
                max_bytes=FETCH_BYTES,
                isolation_level=isolation,
                topics=[{"topic": topic, "partitions": [wanted]}],
            )["responses"][0]["partitions"][0]
            found += answer["records"] or b""
            end, before = batches.end_offset(answer["records"] or b""), offset
            offset = max(offset, end)
            if answer["error_code"] != "NONE" or offset == before:
                break
        shown = {name: answer[name] for name in ("error_code", "high_watermark", "log_start_offset")}
        self._note(
            f"read {self._normal.asked(topic)}",
            None,
            self._normal.answered(shown | {"records": bytes(found)}),
        )
        return bytes(found)

    def list_offsets(
        self,
        topic: str,
        timestamp: int,
        *,
        version: int | None = None,
        partition: int = 0,
        isolation: int = 0,
    ) -> Message:
        """Ask a partition's leader for the offset of a timestamp and return the answer for the partition."""
        wanted = {"partition_index": partition, "timestamp": timestamp}
        answer = self.ask(
            "ListOffsets",
            version,
            node=self.leader(topic, partition),
            replica_id=-1,
            isolation_level=isolation,
            topics=[{"name": topic, "partitions": [wanted]}],
        )
        return _first(answer, "topics", "partitions")

    def init_producer(self, **fields: Any) -> Message:
        """Ask for a producer id; `fields` are InitProducerId's. The answer has producer_id and producer_epoch."""
        given = {"transactional_id": None, "transaction_timeout": TIMEOUT_MS} | fields
        node = None
        if given["transactional_id"] is not None:
            node = self.coordinator(given["transactional_id"], kind=1)
        return self.ask("InitProducerId", 4, node=node, **given)

    def end_offset(self, topic: str, partition: int = 0) -> int:
        """Look at the end of a partition, to wait for it."""
        wanted = [{"name": topic, "partitions": [{"partition_index": partition, "timestamp": -1}]}]
        answer = self.query(
            "ListOffsets", 5, node=self.leader(topic, partition), replica_id=-1, topics=wanted
        )
        return int(answer["topics"][0]["partitions"][0]["offset"])

    # --- nodes

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """Return the node that leads a partition of a topic made here; None for others, which any node may refuse.

        After nodes were hurt it waits until one leads that answers. Raises NotReady.
        """
        if partition < self._topics.get(topic, 0) and (topic, partition) not in self._leaders:
            self._find_leaders(topic)
        return self._leaders.get((topic, partition))

    def coordinator(self, key: str, *, kind: int = 0) -> int:
        """Return the node that coordinates a group (kind 0) or transactional id (1). Raises NotReady."""
        found: list[Message] = []

        def is_found() -> bool:
            answer = self.query("FindCoordinator", 4, key_type=kind, coordinator_keys=[key])
            found[:] = [each for each in answer["coordinators"] if each["error_code"] == "NONE"]
            return bool(found)

        if not self._comes(is_found, WAIT_S):
            raise NotReady(f"no node coordinates {key}")
        self._nodes[found[0]["node_id"]] = (found[0]["host"], found[0]["port"])
        return int(found[0]["node_id"])

    def kill(self, node: int | None) -> None:
        """Kill -9 a node. As the other three, it is only for a history that says that it restarts nodes."""
        self._hurt().kill(_known(node))

    def pause(self, node: int | None) -> None:
        """Stop a node in its tracks; its connections stay open."""
        self._hurt().pause(_known(node))

    def resume(self, node: int | None) -> None:
        """Let a paused node go on."""
        self._hurt().resume(_known(node))

    def restart(self) -> None:
        """Start the nodes that do not run, and wait until they take part."""
        self._hurt().restart()

    def _hurt(self) -> World:
        assert self._world is not None, "the history does not say that it restarts nodes"
        self._leaders.clear()
        for on, node in list(self._connections):
            self._hang_up(on, node)
        return self._world

    # --- its end

    def close(self) -> None:
        """Delete the topics that have its names, undo the rest, and close its connections."""
        for tidy in (self._delete_topics, *self._at_end)[::-1]:
            try:
                tidy()
            except (NotReady, OSError, LookupError):
                pass  # the broker is gone or broken: there is no need to tidy
        for on, node in list(self._connections):
            self._hang_up(on, node)

    def _delete_topics(self) -> None:
        found = [each["name"] for each in self.query("Metadata", 9, topics=None)["topics"]]
        if own := [name for name in found if self._mark in name]:
            self.query("DeleteTopics", 5, topic_names=own, timeout=TIMEOUT_MS)

    # --- within

    def _note(self, asked: str, fields: Any, answer: Any) -> None:
        self.steps.append(Step(asked, fields, answer))

    def _version(self, api: str, version: int | None) -> tuple[int, int]:
        key = api_key(api)
        return key, BY_NAME.get(api, APIS[key].max_version) if version is None else version

    def _connection(self, on: str, node: int | None) -> Connection:
        connection = self._connections.get((on, node))
        if connection is None:
            connection = self._connections[on, node] = self._connect(node)
        return connection

    def _connect(self, node: int | None) -> Connection:
        """Connect to a node, or to the first address that answers."""
        if node is not None:
            return self._open(*self._nodes[node])
        for server in self.servers:
            host, _, port = server.rpartition(":")
            try:
                return self._open(host, int(port))
            except OSError:
                continue
        raise ConnectionError(f"none of {', '.join(self.servers)} answers")

    def _open(self, host: str, port: int) -> Connection:
        return Connection(host, port)

    def _hang_up(self, on: str, node: int | None) -> None:
        self._connections.pop((on, node)).close()

    def _find_leaders(self, topic: str) -> None:
        if not self._comes(lambda: self._is_led(topic), WAIT_S):
            raise NotReady(f"topic {topic} has no leader")

    def _is_led(self, topic: str) -> bool:
        """Learn the leaders of a topic's partitions, and whether these nodes know it."""
        self._leaders = {key: node for key, node in self._leaders.items() if key[0] != topic}
        try:
            return self._knows_leaders(topic)
        except (NotReady, OSError):
            return False

    def _knows_leaders(self, topic: str) -> bool:
        partitions = self._topics[topic]
        answer = self.query("Metadata", 9, topics=[{"name": topic}])
        self._nodes |= {each["node_id"]: (each["host"], each["port"]) for each in answer["brokers"]}
        found = answer["topics"][0]["partitions"]
        if len(found) < partitions or any(each["leader_id"] not in self._nodes for each in found):
            return False
        leaders = {each["partition_index"]: each["leader_id"] for each in found}
        if not all(self._leads(node, topic, index) for index, node in leaders.items()):
            return False
        self._leaders |= {(topic, index): node for index, node in leaders.items()}
        return True

    def _leads(self, node: int, topic: str, index: int) -> bool:
        wanted = [{"name": topic, "partitions": [{"partition_index": index, "timestamp": -2}]}]
        answer = self.query("ListOffsets", 5, node=node, replica_id=-1, topics=wanted)
        return answer["topics"][0]["partitions"][0]["error_code"] not in _NEWS

    @staticmethod
    def _comes(holds: Callable[[], object], within_s: float) -> bool:
        deadline = time.monotonic() + patient(within_s)
        while not (found := holds()) and time.monotonic() < deadline:
            time.sleep(PAUSE_S)
        return bool(found)


def _known(node: int | None) -> int:
    assert node is not None, "no topic of this session has a leader there"
    return node


def _first(answer: Mapping[str, Any], *path: str) -> Message:
    found: Any = answer
    for name in path:
        found = next(iter(found.get(name) or ()), {})
    return dict(found)


def values_of(batch: bytes | None) -> Iterator[str]:
    """Yield the values of the records that a fetch returned, for a history that waits for some of them."""
    for each in batches.read(batch) or ():
        yield from (record["value"] for record in each.get("records", ()))
