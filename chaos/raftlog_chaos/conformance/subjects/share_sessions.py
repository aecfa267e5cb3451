"""Share groups at a partition's leader (KIP-932): share sessions, acquired records, and acknowledgements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from raftlog_chaos.conformance.history import history
from raftlog_chaos.conformance.messages import Message
from raftlog_chaos.conformance.session import FETCH_BYTES, Session
from raftlog_chaos.conformance.subjects.share_groups import ShareMember, offsets, share_group

GAP: Final = 0
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4
FINAL: Final = -1
MADE_UP_ID: Final = "00000000-0000-0000-0000-00000000002a"
GROUP_CONFIGS: Final = 32
"""The type of a resource."""
WAIT_MS: Final = 5_000
SHORT_WAIT_MS: Final = 1_000
"""A wait that may have no end but its own."""
VERSIONS: Final = {"v1": 1, "v2": 2}

Range = tuple[int, int, Sequence[int]]
"""The first and last offset of an acknowledged batch, and its types."""


class Consumer:
    """A member of a share group with a share session on a connection of its own, at the leader of one partition."""

    def __init__(self, s: Session, group: str, topic: str, *, word: str = "a", version: int = 2) -> None:
        self.epoch = 0
        self._s = s
        self.group = group
        self.topic = topic
        self._word = word
        self._version = version

    def fetch(
        self,
        *acknowledged: Range,
        epoch: int | None = None,
        adds: bool = True,
        forgets: bool = False,
        **fields: Any,
    ) -> Message:
        """Send a ShareFetch in an epoch, else in the next one."""
        given = {
            "max_wait": 0,
            "min_bytes": 1,
            "max_bytes": FETCH_BYTES,
            "max_records": 100,
            "batch_size": 100,
        }
        forgotten = [{"topic_id": self._s.topic_id(self.topic), "partitions": [0]}] if forgets else []
        topics = self._topics(acknowledged) if adds or acknowledged else []
        return self._ask(
            "ShareFetch", epoch, forgotten_topics_data=forgotten, **(given | {"topics": topics} | fields)
        )

    def acknowledge(self, *acknowledged: Range, epoch: int | None = None, **fields: Any) -> Message:
        """Send a ShareAcknowledge in an epoch, else in the next one."""
        topics = self._topics(acknowledged) if acknowledged else []
        return self._ask("ShareAcknowledge", epoch, **({"topics": topics} | fields))

    def _ask(self, api: str, epoch: int | None, **fields: Any) -> Message:
        answer = self._s.ask(
            api,
            self._version,
            on=self._word,
            node=self._s.leader(self.topic),
            **{
                "group_id": self.group,
                "member_id": self._word,
                "share_session_epoch": self.epoch if epoch is None else epoch,
                **fields,
            },
        )
        if answer and answer["error_code"] == "NONE":
            self.epoch += 1
        return answer

    def _topics(self, ranges: Sequence[Range]) -> list[Message]:
        batches = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": list(types)}
            for first, last, types in ranges
        ]
        partition = {"partition_index": 0, "acknowledgement_batches": batches}
        return [{"topic_id": self._s.topic_id(self.topic), "partitions": [partition]}]


def ready(s: Session, *, version: int = 2) -> Consumer:
    """Return a member of a group that has its partition, which has three records in one batch and two in another."""
    group, topic = share_group(s), s.topic()
    config = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
    resource = {"resource_type": GROUP_CONFIGS, "resource_name": group, "configs": [config]}
    s.query("IncrementalAlterConfigs", 1, resources=[resource])
    member = ShareMember(s, group, topic)
    member.settle()
    s.produce(topic, s.batch(b"0", b"1", b"2"))
    s.produce(topic, s.batch(b"3", b"4"))
    return Consumer(s, group, topic, version=version)


def other(s: Session, of: Consumer, word: str = "b") -> Consumer:
    """Return another member at the same partition; the leader does not look for it in the group."""
    return Consumer(s, of.group, of.topic, word=word)


def opened(s: Session, *, version: int = 2) -> Consumer:
    """Return a member that holds all five records."""
    member = ready(s, version=version)
    member.fetch(max_wait=WAIT_MS)
    return member


@history(VERSIONS)
def first_fetch(s: Session, version: int) -> None:
    """A first fetch opens a session and acquires; the next has nothing, and accepted records are gone."""
    member = opened(s, version=version)
    member.fetch(adds=False)
    member.acknowledge((0, 4, [ACCEPT]))
    member.fetch(adds=False)
    member.acknowledge(epoch=FINAL)
    member.acknowledge(epoch=FINAL)


TYPES: Final = {"a gap": GAP, "accept": ACCEPT, "release": RELEASE, "reject": REJECT}


@history({f"{name} {way}": (each, way) for name, each in TYPES.items() for way in ("alone", "in a fetch")})
def type(s: Session, row: tuple[int, str]) -> None:
    """Only what is released is delivered again, with another delivery count."""
    each, way = row
    member = opened(s)
    if way == "alone":
        member.acknowledge((1, 3, [each]))
    else:
        member.fetch((1, 3, [each]), adds=False)
    member.fetch(adds=False)
    other(s, member).fetch(max_wait=100)


RANGES: Final[dict[str, tuple[Range, ...]]] = {
    "a type for each record": ((0, 4, [ACCEPT, RELEASE, REJECT, GAP, RELEASE]),),
    "two ranges": ((0, 0, [ACCEPT]), (2, 4, [RELEASE])),
    "parts of both batches": ((2, 3, [RELEASE]),),
    "out of order": ((3, 4, [ACCEPT]), (0, 1, [ACCEPT])),
    "overlapping": ((0, 2, [ACCEPT]), (2, 4, [RELEASE])),
    "twice": ((0, 0, [ACCEPT]), (0, 0, [ACCEPT])),
    "backwards": ((3, 1, [ACCEPT]),),
    "no type": ((0, 4, []),),
    "too few types": ((0, 4, [ACCEPT, ACCEPT]),),
    "too many types": ((0, 0, [ACCEPT, ACCEPT]),),
    "an unknown type": ((0, 4, [9]),),
    "a negative type": ((0, 4, [-1]),),
    "a negative offset": ((-1, 1, [ACCEPT]),),
    "beyond the end": ((3, 9, [ACCEPT]),),
    "only beyond the end": ((7, 9, [ACCEPT]),),
}
"""What is acknowledged by a member that holds offsets 0 to 4, by its name."""


@history(RANGES)
def ranges(s: Session, acknowledged: tuple[Range, ...]) -> None:
    """All of a partition's acknowledgements count, or none."""
    member = opened(s)
    member.acknowledge(*acknowledged)
    member.fetch(adds=False)


@history(
    {f"{name} in a fetch": RANGES[name] for name in ("out of order", "an unknown type", "beyond the end")}
)
def ranges_of_a_fetch(s: Session, acknowledged: tuple[Range, ...]) -> None:
    """The same in a ShareFetch."""
    member = opened(s)
    member.fetch(*acknowledged, adds=False)
    member.fetch(adds=False)


@history()
def not_held(s: Session) -> None:
    """Records that another member holds, that are accepted, or that are available again are no member's."""
    member = ready(s)
    second = other(s, member)
    member.fetch(max_wait=WAIT_MS)
    second.fetch()
    second.acknowledge((0, 4, [ACCEPT]))
    member.acknowledge((0, 1, [ACCEPT]), (2, 2, [RELEASE]))
    member.acknowledge((1, 1, [ACCEPT]))
    member.acknowledge((2, 2, [ACCEPT]))
    second.fetch(adds=False)
    member.acknowledge((2, 2, [ACCEPT]))
    second.acknowledge((2, 2, [REJECT]))
    member.acknowledge((3, 4, [ACCEPT]))


EPOCHS: Final = {"0": 0, "the same again": 1, "3": 3, "-2": -2, "the largest": 2**31 - 1}


@history(
    {f"{name} of {api}": (each, api) for name, each in EPOCHS.items() for api in ("fetch", "acknowledge")}
)
def session_epoch(s: Session, row: tuple[int, str]) -> None:
    """The session goes on with the next epoch; a fetch with epoch 0 begins another."""
    epoch, api = row
    member = opened(s)
    member.acknowledge((0, 0, [ACCEPT]))
    if api == "fetch":
        member.fetch(epoch=epoch)
    else:
        member.acknowledge((1, 1, [ACCEPT]), epoch=epoch)
    member.acknowledge((2, 2, [ACCEPT]), epoch=2)


@history({"0": 0, "1": 1, "the last": FINAL})
def no_session(s: Session, epoch: int) -> None:
    """A member without a session can neither acknowledge nor go on."""
    member = ready(s)
    member.acknowledge((0, 0, [ACCEPT]), epoch=epoch)
    if epoch:
        member.fetch(epoch=epoch)


@history({"acknowledge": False, "fetch": True})
def final_epoch(s: Session, by_fetch: bool) -> None:
    """The last epoch ends the session and releases what the member holds."""
    member = opened(s)
    if by_fetch:
        member.fetch((0, 0, [ACCEPT]), epoch=FINAL)
    else:
        member.acknowledge((0, 0, [ACCEPT]), epoch=FINAL)
    second = other(s, member)
    second.fetch(max_wait=WAIT_MS)
    member.fetch(epoch=2)


@history()
def acknowledged_at_first(s: Session) -> None:
    """A first fetch cannot acknowledge."""
    member = ready(s)
    member.fetch((0, 0, [ACCEPT]))
    member.fetch(max_wait=WAIT_MS)


RENEWALS: Final[dict[str, tuple[str, bool, int]]] = {
    "alone": ("acknowledge", True, 2),
    "alone without the flag": ("acknowledge", False, 2),
    "in a fetch": ("fetch", True, 2),
    "in a fetch without the flag": ("fetch", False, 2),
    "in v1": ("acknowledge", False, 1),
}


@history(RENEWALS)
def renewal(s: Session, row: tuple[str, bool, int]) -> None:
    """A renewal keeps the lock of a record, in version 2; a fetch that renews acquires nothing."""
    api, flag, version = row
    member = opened(s, version=version)
    fields: dict[str, Any] = {"is_renew_ack": flag} if version > 1 else {}
    if api == "acknowledge":
        member.acknowledge((0, 4, [RENEW]), **fields)
    elif flag:
        member.fetch((0, 4, [RENEW]), adds=False, max_bytes=0, max_records=0, min_bytes=0, **fields)
        member.fetch((0, 4, [RENEW]), adds=False, epoch=2, **fields)
    else:
        member.fetch((0, 4, [RENEW]), adds=False, **fields)
    member.acknowledge((0, 4, [ACCEPT]))


LIMITS: Final[dict[str, Message]] = {
    "one record": {"max_records": 1},
    "four records": {"max_records": 4},
    "no records": {"max_records": 0},
    "fewer than none": {"max_records": -1},
    "batches of two": {"batch_size": 2},
    "batches of none": {"batch_size": 0},
    "one record at most": {"max_records": 1, "share_acquire_mode": 1},
    "four records at most": {"max_records": 4, "share_acquire_mode": 1},
    "an unknown mode": {"share_acquire_mode": 2},
    "one byte": {"max_bytes": 1},
    "no bytes": {"max_bytes": 0},
}


@history(LIMITS)
def limit(s: Session, fields: Message) -> None:
    """A fetch acquires whole batches, or exactly so many records, and answers in batches for acknowledgements."""
    member = ready(s)
    member.fetch(**{"max_wait": SHORT_WAIT_MS, **fields})
    other(s, member).fetch(max_wait=SHORT_WAIT_MS)


PLACES: Final[dict[str, Message]] = {
    "no group": {"group_id": ""},
    "null as group": {"group_id": None},
    "no member": {"member_id": ""},
    "an unknown topic": {"topics": [{"topic_id": MADE_UP_ID, "partitions": [{"partition_index": 0}]}]},
    "an unknown topic, acknowledged": {
        "topics": [
            {
                "topic_id": MADE_UP_ID,
                "partitions": [
                    {
                        "partition_index": 0,
                        "acknowledgement_batches": [
                            {"first_offset": 0, "last_offset": 0, "acknowledge_types": [ACCEPT]}
                        ],
                    }
                ],
            }
        ]
    },
}


@history(
    {f"{name} of {api}": (each, api) for name, each in PLACES.items() for api in ("fetch", "acknowledge")}
)
def place(s: Session, row: tuple[Message, str]) -> None:
    """A group, a member, or a topic that is not there."""
    fields, api = row
    member = ready(s)
    if api == "fetch":
        member._ask("ShareFetch", 0, **({"max_wait": 100, "max_records": 1, "topics": []} | fields))
    else:
        member.fetch(max_wait=WAIT_MS)
        member._ask("ShareAcknowledge", 1, **({"topics": []} | fields))


@history()
def forgotten(s: Session) -> None:
    """A partition that leaves the session keeps its locks, and comes back with the next fetch that names it."""
    member = opened(s)
    member.fetch(adds=False, forgets=True)
    member.acknowledge((0, 0, [RELEASE]))
    member.fetch(adds=False)
    member.fetch(max_wait=WAIT_MS)


@history()
def start_offset(s: Session) -> None:
    """Accepted records move the group's start offset to the first record without an end."""
    member = opened(s)
    member.acknowledge((0, 1, [ACCEPT]))
    member.acknowledge((3, 3, [ACCEPT]))
    offsets(s, member.group, None)
