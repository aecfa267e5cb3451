"""The words of drawn histories about fetch sessions (KIP-227), with what draws their fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

from raftlog_chaos.conformance import batches
from raftlog_chaos.conformance.generation.plan import Step, Theme, Word, mostly
from raftlog_chaos.conformance.generation.scene import Scene
from raftlog_chaos.conformance.messages import Message
from raftlog_chaos.conformance.session import FETCH_BYTES, Session

SLOTS: Final = ("session-0", "session-0", "session-1")
BY_ID: Final = 13
"""The first version of Fetch that names topics by id."""
NOT_THERE: Final = 1_234_567
"""The id of a session that no broker gave out."""
LAST_EPOCH: Final = 2**31 - 1
FINAL: Final = -1
"""The epoch of a request that ends its session, or has none."""


class FetchSession:
    """A slot: what a client knows of its session."""

    def __init__(self) -> None:
        self.id = 0
        self.epoch = 0
        self.version = 12
        self.read: dict[int, int] = {}
        """The offset at which it reads on, by partition."""


class SessionWords(Scene):
    """Fetches in sessions. All sessions are closed at the end, so that no history fills a broker's memory."""

    def __init__(self, s: Session, topic: str, partitions: int) -> None:
        super().__init__(s, topic, partitions)
        self._slots: dict[str, FetchSession] = {}
        self._opened: set[int] = set()
        s.at_end(self._close_sessions)

    def session_open(
        self, *, slot: str, version: int, isolation: int, add: list[Mapping[str, Any]], is_again: bool
    ) -> None:
        """Begin a session with some partitions, instead of the last session or beside it."""
        session = self._slots.setdefault(slot, FetchSession())
        identity = session.id if is_again else 0
        session.version, session.epoch = version, 0
        self._fetch_in(slot, {"session_id": identity, "isolation_level": isolation}, add=add, forget=[])

    def session_next(
        self,
        *,
        slot: str,
        identity: str,
        epoch: str,
        version: int | None,
        add: list[Mapping[str, Any]],
        forget: list[int],
        **rest: Any,
    ) -> None:
        """Go on in a session, with partitions that are new, move or are forgotten; now and then in a wrong epoch."""
        session = self._slots.setdefault(slot, FetchSession())
        ids = {"own": session.id, "none": 0, "not there": NOT_THERE}
        epochs = {
            "next": session.epoch + 1 if session.id else 0,
            "same": session.epoch,
            "skipped": session.epoch + 2,
            "first": 0,
            "negative": -2,
            "last": LAST_EPOCH,
        }
        fields = {
            "session_id": ids[identity],
            "session_epoch": epochs[epoch],
            "isolation_level": rest["isolation"],
            "max_bytes": rest["max_bytes"],
        }
        added = [each["partition"] for each in add]
        forgotten = [each for each in forget if fields["session_epoch"] and each not in added]
        self._fetch_in(slot, fields, add=add, forget=forgotten, version=version, is_former=rest["is_former"])

    def session_close(self, *, slot: str, identity: str, add: list[Mapping[str, Any]]) -> None:
        """End a session, perhaps with a last fetch, which needs none."""
        session = self._slots.setdefault(slot, FetchSession())
        fields = {"session_id": session.id if identity == "own" else 0, "session_epoch": FINAL}
        self._fetch_in(slot, fields, add=add, forget=[])

    def _fetch_in(
        self,
        slot: str,
        fields: Mapping[str, Any],
        *,
        add: Sequence[Mapping[str, Any]],
        forget: Sequence[int],
        version: int | None = None,
        is_former: bool = False,
    ) -> None:
        session = self._slots[slot]
        wanted = [self._wanted(session, each) for each in add]
        name = {"topic": self.topic, "topic_id": self.topic_id(is_former=is_former)}
        given = {"session_epoch": 0, "max_bytes": FETCH_BYTES, **fields}
        number = version or session.version
        answer = self.s.query(
            "Fetch",
            number,
            node=self.s.leader(self.topic),
            max_wait=0,
            topics=[{**name, "partitions": wanted}] if wanted else [],
            forgotten_topics_data=[{**name, "partitions": forget}] if forget else [],
            **given,
        )
        self._learn(session, answer, epoch=given["session_epoch"])
        at = ", ".join(f"{each['partition']} at {each['fetch_offset']}" for each in wanted)
        less = f", without {forget}" if forget else ""
        whose = ", of the former topic" if is_former and self.former_id else ""
        limits = f"isolation {given.get('isolation_level', 0)}, {given['max_bytes']} bytes"
        asked = f"epoch {given['session_epoch']}, partitions [{at}]{less}{whose}, {limits}"
        self.s.observe(f"Fetch v{number} in {slot}, {asked}", self._shown(answer))

    def _wanted(self, session: FetchSession, each: Mapping[str, Any]) -> dict[str, Any]:
        partition, offset = each["partition"], each["offset"]
        at = session.read.get(partition, 0) if offset == "read" else self.offset_at(offset, partition)
        return {
            "partition": partition,
            "fetch_offset": at,
            "partition_max_bytes": FETCH_BYTES,
            "current_leader_epoch": -1,
        }

    def _learn(self, session: FetchSession, answer: Message, *, epoch: int) -> None:
        if answer["error_code"] != "NONE":
            return
        if answer["session_id"]:
            session.id, session.epoch = answer["session_id"], max(0, epoch)
            self._opened.add(session.id)
        for topic in answer["responses"]:
            for each in topic["partitions"]:
                end = batches.end_offset(batches.whole(each["records"] or b""))
                session.read[each["partition_index"]] = max(end, session.read.get(each["partition_index"], 0))

    def _shown(self, answer: Message) -> Message:
        found = [
            {"topic": self._called(topic), "partition_index": each["partition_index"]} | shown_partition(each)
            for topic in answer["responses"]
            for each in topic["partitions"]
        ]
        shown = {name: answer[name] for name in ("error_code", "session_id")}
        return {**shown, "partitions": found}

    def _called(self, topic: Message) -> str:
        if "topic" in topic:
            return str(topic["topic"])
        known = {self.former_id: "the former topic", self.topic_id(): "topic"}
        return known.get(topic["topic_id"], "another topic")

    def _close_sessions(self) -> None:
        for each in self._opened:
            node = self.s.leader(self.topic)
            self.s.query("Fetch", 12, node=node, max_wait=0, session_id=each, session_epoch=FINAL, topics=[])


# --- drawing


def _add(random: Random, counts: Sequence[int]) -> list[Mapping[str, Any]]:
    among = mostly(random, (0, 1), (0, 1, 2, 7), share=0.9)
    chosen = random.sample(among, min(len(among), random.choice(counts)))
    offsets = (0, 0, "read", "read", "read", "start", "end", 1, "beyond")
    return [{"partition": each, "offset": random.choice(offsets)} for each in chosen]


def _version(random: Random) -> int:
    return random.choice((7, 10, 11, 12, 12, 13, 13, 15, 16, 17))


def _open(random: Random) -> Mapping[str, Any]:
    return {
        "slot": random.choice(SLOTS),
        "version": _version(random),
        "isolation": random.choice((0, 1)),
        "add": _add(random, (1, 2, 2, 2, 3)),
        "is_again": random.random() < 0.5,
    }


def _next(random: Random) -> Mapping[str, Any]:
    return {
        "slot": random.choice(SLOTS),
        "identity": mostly(random, "own", "none", "not there", share=0.96),
        "epoch": mostly(random, "next", "same", "skipped", "first", "negative", "last", share=0.9),
        "version": mostly(random, None, _version(random), share=0.95),
        "add": _add(random, (0, 0, 1, 1, 2)),
        "forget": mostly(random, [], [0], [1], [0, 1], [7], share=0.8),
        "isolation": random.choice((0, 1)),
        "max_bytes": mostly(random, FETCH_BYTES, 1, share=0.9),
        "is_former": random.random() < 0.2,
    }


def _close(random: Random) -> Mapping[str, Any]:
    return {
        "slot": random.choice(SLOTS),
        "identity": mostly(random, "own", "none"),
        "add": _add(random, (0, 0, 1)),
    }


def _reading_on(random: Random) -> list[Step]:
    """A session that is begun and read on in, as a consumer does."""
    slot = random.choice(SLOTS)
    on = {"slot": slot, "identity": "own", "epoch": "next", "version": None, "is_former": False}
    made = [Step("session_open", {**_open(random), "slot": slot})]
    made += [Step("session_next", {**_next(random), **on}) for _ in range(random.choice((1, 1, 2)))]
    return made


THEME: Final = Theme(
    {
        "session_open": Word(12, _open),
        "session_next": Word(50, _next),
        "session_close": Word(4, _close),
    },
    (({"session_open", "session_next"}, _reading_on),),
)


def shown_partition(partition: Message) -> Message:
    """Return what a client takes from the answer for a partition.

    It takes an error alone; else whole batches, and the aborted transactions among them.
    """
    if partition["error_code"] != "NONE":
        return {"error_code": partition["error_code"]}
    records = batches.whole(partition["records"] or b"")
    end = batches.end_offset(records)
    aborted = [each for each in partition["aborted_transactions"] or () if each["first_offset"] < end]
    return {**partition, "records": records, "aborted_transactions": aborted}
