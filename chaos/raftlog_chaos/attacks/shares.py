"""Share groups of strangers: sessions without end, acknowledgements of what others have, very many groups (KIP-932)."""

from __future__ import annotations

import contextlib
import re
from typing import Any, Final
from uuid import UUID

from raftlog.base.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
    PolicyViolation,
    ShareSessionLimitReached,
)
from raftlog.protocol.codec import decode_response
from raftlog.protocol.message_builders import request_builders
from raftlog_chaos.attacks.facts import ask
from raftlog_chaos.attacks.registry import attack
from raftlog_chaos.attacks.target import Line, Target, counted, expect, for_seconds, request

HEARTBEAT, FETCH, ACKNOWLEDGE, ALTER_OFFSETS, METADATA = 76, 78, 79, 91, 3
ACCEPT, RENEW = 1, 4
NODES: Final = (1, 2, 3)
GROUP: Final = "attack-share"
MOST_SESSIONS: Final = 2_000
MOST_BATCHES: Final = 24_000
MOST_PARTITIONS: Final = 10_000
MOST_GROUPS: Final = 10_000
JOINING: Final = 10
"""Connections of members that join."""
JOINING_S: Final = 15.0
"""At each node."""
CROWDING: Final = 20
"""Connections of a client that joins at each of the nodes at once."""
CROWDING_S: Final = 65.0
GROUP_BYTES: Final = 1_000
"""The least that a node counts for a group."""
CROWD_AT_ONCE: Final = 4
"""Its joins that are under way on a connection."""
EXPECTED: Final = frozenset(
    f"error {error.code}"
    for error in (NotCoordinator, CoordinatorLoadInProgress, CoordinatorNotAvailable, PolicyViolation)
) | {"error 0"}
AT_ONCE: Final = 20
"""Requests that are under way on a connection."""
MOST_EPOCHS: Final = 500
MOST_RENEWALS: Final = 1_000


def _fetch(member: str, epoch: int, topics: tuple[Any, ...] = (), *, max_wait: int = 0) -> bytes:
    """Return a ShareFetch."""
    return request(
        FETCH,
        2,
        "ShareFetchRequest",
        group_id=GROUP,
        member_id=member,
        share_session_epoch=epoch,
        max_wait=max_wait,
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


def _acknowledge(
    line: Line,
    topic_id: UUID,
    epoch: int,
    partitions: dict[int, list[tuple[int, int]]],
    *,
    kind: int = ACCEPT,
) -> Any:
    """Accept ranges of offsets, or renew their locks; return the answer."""
    make = request_builders(ACKNOWLEDGE, 2)
    said = tuple(
        make.AcknowledgePartition(
            partition_index=index,
            acknowledgement_batches=tuple(
                make.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=(kind,))
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
        is_renew_ack=kind == RENEW,
        topics=(topic,),
    )


def _heartbeat(target: Target, group: str, epoch: int) -> bytes:
    return request(
        HEARTBEAT,
        1,
        "ShareGroupHeartbeatRequest",
        group_id=group,
        member_id="m",
        member_epoch=epoch,
        subscribed_topic_names=(target.topic,),
    )


def _acquire(target: Target, line: Line, topic_id: UUID, index: int) -> list[tuple[int, int]]:
    """Open a share session with one partition, whose records are given from their start; return what is acquired."""
    make = request_builders(ALTER_OFFSETS, 0)
    start = make.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=0)
    named = make.AlterShareGroupOffsetsRequestTopic(topic_name=target.topic, partitions=(start,))
    fields = {"group_id": GROUP, "topics": (named,)}
    codes = []
    for node in NODES:
        with target.line("kafka", node) as asked:
            answer = asked.request(ALTER_OFFSETS, 0, "AlterShareGroupOffsetsRequest", 10.0, **fields)
            codes.append(None if answer is None else answer.error_code)
    expect(0 in codes, f"no node sets the group's offset: {codes}")
    fetch = request_builders(FETCH, 2)
    partition = fetch.FetchPartition(partition_index=index, acknowledgement_batches=())
    topics = (fetch.FetchTopic(topic_id=topic_id, partitions=(partition,)),)
    opened = line.ask(_fetch("stranger", 0, topics, max_wait=5_000), 10.0)
    expect(opened is not None, "no share session")
    answer = decode_response(FETCH, 2, memoryview(opened or b""))[1]
    parts = [part for topic in answer.responses for part in topic.partitions]
    return [(each.first_offset, each.last_offset) for part in parts for each in part.acquired_records]


@attack("kafka", within_s=60)
def share_sessions_without_end(target: Target) -> str:
    """Share sessions are limited, and those of a connection end with it without a stall."""
    frames = [_fetch(f"m-{number}", 0) for number in range(MOST_SESSIONS)]
    for node in NODES:
        with target.line("kafka", node) as line, target.line("kafka", node) as other:
            for at in range(0, len(frames), AT_ONCE):
                line.send(b"".join(frames[at : at + AT_ONCE]))
                for _ in range(AT_ONCE):
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


@attack("kafka", within_s=90)
def thousands_of_made_up_share_groups(target: Target) -> str:
    """Members that join ten thousand share groups, or as many as a node takes in time, and stay away cost a bound."""
    frames = [_heartbeat(target, f"attack-share-{number}", 0) for number in range(MOST_GROUPS)]
    codes = []
    for node in NODES:
        going_on = for_seconds(JOINING_S)
        with target.lines(JOINING, "kafka", node) as lines:
            for at in range(0, len(frames), AT_ONCE * JOINING):
                if not going_on():
                    break
                each_lines = [
                    frames[at + number : at + AT_ONCE * JOINING : JOINING] for number in range(JOINING)
                ]
                for line, some in zip(lines, each_lines, strict=True):
                    line.send(b"".join(some))
                codes += [_error(line) for line, some in zip(lines, each_lines, strict=True) for _ in some]
    return counted(codes)


@attack("kafka", within_s=90)
def ten_thousand_share_groups_of_one_client(target: Target) -> str:
    """A client that joins ten thousand share groups at all nodes at once is counted for each, or refused by a limit."""
    frames = [_heartbeat(target, f"attack-crowd-{number}", 0) for number in range(MOST_GROUPS)]
    before = {node: _group_bytes(target, node) for node in NODES}
    codes: dict[int, list[str]] = {node: [] for node in NODES}
    going_on = for_seconds(CROWDING_S)
    with contextlib.ExitStack() as opened:
        lines = {node: opened.enter_context(target.lines(CROWDING, "kafka", node)) for node in NODES}
        for at in range(0, len(frames), CROWDING * CROWD_AT_ONCE):
            if not going_on():
                break
            some = frames[at : at + CROWDING * CROWD_AT_ONCE]
            for each in lines.values():
                for number, line in enumerate(each):
                    line.send(b"".join(some[number::CROWDING]))
            for node, each in lines.items():
                codes[node] += [
                    _error(line) for number, line in enumerate(each) for _ in some[number::CROWDING]
                ]
    for node in NODES:
        joined = codes[node].count("error 0")
        grown = _group_bytes(target, node) - before[node]
        expect(grown >= joined * GROUP_BYTES, f"node {node} counts {grown} bytes for {joined} groups")
    found = [each for some in codes.values() for each in some]
    expect(set(found) <= EXPECTED, f"other answers than {sorted(EXPECTED)}: {counted(found)}")
    return counted(found)


def _group_bytes(target: Target, node: int) -> int:
    """Return the bytes that a node counts for the groups that it coordinates."""
    metrics = ask(target.nodes[node], "/metrics").decode()
    found = re.search(r"^raftlog_group_memory_bytes (\S+)\n", metrics, re.MULTILINE)
    expect(found is not None, "a node does not count its groups")
    return int(float(found[1])) if found else 0


def _error(line: Line) -> str:
    answer = line.receive(20.0)
    expect(answer is not None, "a member is not answered")
    return f"error {decode_response(HEARTBEAT, 1, memoryview(answer or b''))[1].error_code}"


@attack("kafka", within_s=60)
def epochs_of_the_past(target: Target) -> str:
    """Members and share sessions in epochs of the past, or of the future, are fenced and end no other's session."""
    words = []
    for node in NODES:
        with target.line("kafka", node) as line, target.line("kafka", node) as other:
            topic_id = _topic_id(target, line)
            expect(other.ask(_fetch("stranger", 0), 10.0) is not None, "no share session")
            for epoch in range(1, MOST_EPOCHS):
                old = _acknowledge(line, topic_id, -epoch - 1, {node - 1: [(0, 0)]})
                wrong = _acknowledge(line, topic_id, epoch + 1, {node - 1: [(0, 0)]})
                errors = {None if each is None else each.error_code for each in (old, wrong)}
                expect(not errors & {None, 0}, f"epoch {epoch} is answered with {errors}")
            going_on = _acknowledge(other, topic_id, 1, {node - 1: [(0, 0)]})
            expect(going_on is not None and going_on.error_code == 0, "a session ended by other epochs")
            line.send(b"".join(_heartbeat(target, GROUP, each) for each in range(-2, -MOST_EPOCHS, -1)))
            words.append(line.outcome(10.0))
    return counted(words)


@attack("kafka", within_s=60)
def renewals_without_end(target: Target) -> str:
    """Locks that are renewed again and again by very many requests leave a node's clients their time."""
    words = []
    for node in NODES:
        with target.line("kafka", node) as line:
            topic_id = _topic_id(target, line)
            acquired = _acquire(target, line, topic_id, node - 1)
            expect(bool(acquired), "nothing is acquired")
            for epoch in range(1, MOST_RENEWALS):
                renewed = _acknowledge(line, topic_id, epoch, {node - 1: acquired}, kind=RENEW)
                expect(renewed is not None, f"renewal {epoch} is not answered")
                codes = {part.error_code for topic in renewed.responses for part in topic.partitions}
                expect(codes == {0}, f"renewal {epoch} is refused with errors {codes}")
            words.append(f"{MOST_RENEWALS} renewals")
    return counted(words)
