"""Share groups of strangers: sessions without end, acknowledgements of what others have, very many groups (KIP-932)."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from raftlog.base.errors import ShareSessionLimitReached
from raftlog.protocol.message_builders import request_builders
from raftlog_chaos.attacks.registry import attack
from raftlog_chaos.attacks.target import Line, Target, counted, expect, outcomes_of, request

HEARTBEAT, FETCH, ACKNOWLEDGE, METADATA = 76, 78, 79, 3
NODES: Final = (1, 2, 3)
GROUP: Final = "attack-share"
MOST_SESSIONS: Final = 2_000
MOST_BATCHES: Final = 24_000
MOST_PARTITIONS: Final = 10_000


def _fetch(member: str, epoch: int, topics: tuple[Any, ...] = ()) -> bytes:
    """Return a ShareFetch that does not wait."""
    return request(
        FETCH,
        2,
        "ShareFetchRequest",
        group_id=GROUP,
        member_id=member,
        share_session_epoch=epoch,
        max_wait=0,
        min_bytes=1,
        max_bytes=1 << 20,
        max_records=100,
        batch_size=1,
        topics=topics,
    )


def _topic_id(target: Target, line: Line) -> UUID:
    topic = request_builders(METADATA, 12).MetadataRequestTopic(name=target.topic, topic_id=None)
    answer = line.request(METADATA, 12, "MetadataRequest", topics=(topic,))
    expect(answer is not None, "no metadata")
    found: UUID = answer.topics[0].topic_id
    return found


def _acknowledge(line: Line, topic_id: UUID, epoch: int, partitions: dict[int, list[tuple[int, int]]]) -> Any:
    """Accept ranges of offsets; return the answer."""
    make = request_builders(ACKNOWLEDGE, 2)
    said = tuple(
        make.AcknowledgePartition(
            partition_index=index,
            acknowledgement_batches=tuple(
                make.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=(1,))
                for first, last in ranges
            ),
        )
        for index, ranges in partitions.items()
    )
    topic = make.AcknowledgeTopic(topic_id=topic_id, partitions=said)
    return line.request(
        ACKNOWLEDGE,
        2,
        "ShareAcknowledgeRequest",
        within_s=10.0,
        group_id=GROUP,
        member_id="stranger",
        share_session_epoch=epoch,
        topics=(topic,),
    )


@attack("kafka", within_s=60)
def share_sessions_without_end(target: Target) -> str:
    """Share sessions are limited, and those of a connection end with it without a stall."""
    frames = [_fetch(f"m-{number}", 0) for number in range(MOST_SESSIONS)]
    for node in NODES:
        with target.line("kafka", node) as line, target.line("kafka", node) as other:
            for at in range(0, len(frames), 50):
                line.send(b"".join(frames[at : at + 50]))
                for _ in range(50):
                    expect(line.receive(10.0) is not None, "a share session is not opened")
            make = {"group_id": GROUP, "member_id": "one too many", "share_session_epoch": 0, "topics": ()}
            waits = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1, "max_records": 1, "batch_size": 1}
            answer = other.request(FETCH, 2, "ShareFetchRequest", 10.0, **make, **waits)
            expect(
                answer is not None and answer.error_code == ShareSessionLimitReached.code,
                "share sessions have no end",
            )
    return f"{MOST_SESSIONS} sessions at each node"


@attack("kafka", within_s=60)
def acknowledgements_of_what_others_have(target: Target) -> str:
    """Accepting very many records that a member does not hold has no effect; each partition gets an error."""
    words = []
    for node in NODES:
        with target.line("kafka", node) as line:
            topic_id = _topic_id(target, line)
            expect(line.ask(_fetch("stranger", 0), 10.0) is not None, "no share session")
            for epoch, partitions in enumerate(
                (
                    {node - 1: [(each, each) for each in range(MOST_BATCHES)]},
                    {each: [(0, 0)] for each in range(MOST_PARTITIONS)},
                    {node - 1: [(0, 2**63 - 1)], 0: [(5, 1)], 1: [(-(2**63), -1)]},
                ),
                start=1,
            ):
                answer = _acknowledge(line, topic_id, epoch, partitions)
                expect(answer is not None, f"request {epoch} is not answered")
                expect(answer.error_code == 0, f"request {epoch} is refused with error {answer.error_code}")
                parts = [each for topic in answer.responses for each in topic.partitions]
                expect(all(each.error_code for each in parts), "a stranger's acknowledgement counts")
                words.append("refused")
    return counted(words)


@attack("kafka", within_s=60)
def thousands_of_made_up_share_groups(target: Target) -> str:
    """Members that join two thousand share groups, and never come back, cost a bound."""
    frames = [
        request(
            HEARTBEAT,
            1,
            "ShareGroupHeartbeatRequest",
            group_id=f"attack-share-{number}",
            member_id="m",
            member_epoch=0,
            subscribed_topic_names=(target.topic,),
        )
        for number in range(2_000)
    ]
    words = []
    for node in NODES:
        with target.lines(4, "kafka", node) as lines:
            for number, line in enumerate(lines):
                line.send(b"".join(frames[number::4]))
            words += outcomes_of(lines, 6.0)
    return counted(words)
