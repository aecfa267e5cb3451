"""The largest requests of groups that take more than one frame.

Share groups (KIP-932) have sessions, locks, acknowledgements and offsets. Members of both new protocols join.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final
from uuid import UUID, uuid4

from raftlog.base.errors import NONE
from raftlog.broker.api import IN_TURNS
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import request_builders
from raftlog_chaos.attacks.target import Line
from raftlog_chaos.turns.states import (
    ANSWER_S,
    COMMITTED_GROUP,
    GROUP_OF_MANY_TOPICS,
    MOST_LOCKS,
    SHARE_GROUP,
    WIDE,
)

ACCEPT: Final = 1
RELEASE: Final = 2
FINAL_EPOCH: Final = -1
RECORD_LIMIT: Final = 1
PER_TOPIC: Final = 4
"""Partitions of a topic that a session has."""
PARTS_OF_ACKNOWLEDGED: Final = 3
"""The parts that an acknowledged partition has in a request."""
TOPICS_OF_A_GROUP: Final = 1_000
"""See `rows.ONE_DECISION` about more."""

Partitions = Sequence[tuple[UUID, int]]


class ShareMember:
    """A member of a share group, in one share session on one connection. It raises AssertionError if it is refused."""

    def __init__(self, line: Line, group: str) -> None:
        self._line = line
        self._group = group
        self._epoch = 0

    def fetch(self, added: Partitions = (), *, forgotten: Partitions = (), most: int = 0) -> Any:
        """Acquire `most` records, after some partitions are added to the session and others are removed."""
        make = request_builders(ApiKey.SHARE_FETCH, 2)
        return self._ask(
            ApiKey.SHARE_FETCH,
            "ShareFetchRequest",
            max_wait=0,
            min_bytes=1,
            max_bytes=50 << 20,
            max_records=most,
            batch_size=1,
            share_acquire_mode=RECORD_LIMIT,
            topics=tuple(
                make.FetchTopic(
                    topic_id=topic_id,
                    partitions=tuple(
                        make.FetchPartition(partition_index=each, acknowledgement_batches=()) for each in some
                    ),
                )
                for topic_id, some in _by_topic(added)
            ),
            forgotten_topics_data=tuple(
                make.ForgottenTopic(topic_id=topic_id, partitions=tuple(some))
                for topic_id, some in _by_topic(forgotten)
            ),
        )

    def acknowledge(
        self,
        partitions: Partitions,
        ranges: Sequence[tuple[int, int, Sequence[int]]] = (),
        *,
        final: bool = False,
    ) -> Any:
        """Acknowledge the same ranges of offsets in some partitions; with `final`, end the session."""
        make = request_builders(ApiKey.SHARE_ACKNOWLEDGE, 2)
        said = tuple(
            make.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=tuple(types))
            for first, last, types in ranges
        )
        if final:
            self._epoch = FINAL_EPOCH
        return self._ask(
            ApiKey.SHARE_ACKNOWLEDGE,
            "ShareAcknowledgeRequest",
            topics=tuple(
                make.AcknowledgeTopic(
                    topic_id=topic_id,
                    partitions=tuple(
                        make.AcknowledgePartition(partition_index=each, acknowledgement_batches=said)
                        for each in some
                    ),
                )
                for topic_id, some in _by_topic(partitions)
            ),
        )

    def _ask(self, api_key: ApiKey, name: str, **fields: Any) -> Any:
        answer = self._line.request(
            api_key,
            2,
            name,
            ANSWER_S,
            group_id=self._group,
            member_id="member",
            share_session_epoch=self._epoch,
            **fields,
        )
        assert answer is not None, f"{name} is not answered"
        assert answer.error_code == NONE, f"{name} is refused: {answer.error_code} {answer.error_message}"
        self._epoch += 1
        return answer


def share_requests(
    connect: Callable[[], Line],
    own: tuple[str, UUID],
    many: Partitions,
    *,
    aborted: Partitions,
    topics: Sequence[str],
    share: float,
) -> Iterator[tuple[str, str, Callable[[], str]]]:
    """Yield what is asked, what bounds it, and a function that asks and returns the answer in words.

    `own` is a topic with one partition that the node leads and that has many records; `many` are partitions of any
    topics. `aborted` have aborted batches. `topics` are all topics. `share`: so much of what the limits allow.
    """
    locks = int(MOST_LOCKS * share)
    limit = f"locks of a partition {MOST_LOCKS}"
    yield f"share group: {locks} locks, each by itself", limit, partial(_split_locks, connect, own, locks)
    yield (
        f"share fetch: aborted batches of {len(aborted)} partitions",
        "record batches of a read 2000",
        partial(_fetch_committed, connect, aborted),
    )
    most = (IN_TURNS - 100) * PER_TOPIC // (PER_TOPIC + 1)
    fetched = many[: int(most * share)]
    what = f"share session: {len(fetched)} partitions"
    yield what, f"parts {IN_TURNS}", partial(_use_session, connect, fetched)
    read = topics[: int(TOPICS_OF_A_GROUP * share)]
    limit = f"topics {TOPICS_OF_A_GROUP}"
    what = f"share group: offsets of {len(read)} topics set, described and deleted"
    yield what, limit, partial(_use_offsets, connect, read)
    for api_key in (ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_HEARTBEAT):
        what = f"{api_key.name.lower()}: a member of {len(read)} topics"
        yield what, limit, partial(_join_and_leave, connect, api_key, read)


def _split_locks(connect: Callable[[], Line], own: tuple[str, UUID], locks: int) -> str:
    """Accept every other record, and release the others; then the same of what is left, in one acknowledgement."""
    name, topic_id = own
    partitions = ((topic_id, 0),)
    with connect() as line:
        _set_start(line, SHARE_GROUP, name, 1)
        member = ShareMember(line, SHARE_GROUP)
        member.fetch(partitions)
        acquired = member.fetch(most=locks)
        each_alone = [(each, each, (RELEASE if each % 2 else ACCEPT,)) for each in range(locks)]
        answers = [acquired, member.acknowledge(partitions, each_alone), member.fetch(most=locks)]
        each_alone = [(each, each, (ACCEPT,)) for each in range(3, locks, 4)]
        answers.append(member.acknowledge(partitions, each_alone))
        answers.append(member.acknowledge((), final=True))
    parts = [each for answer in answers[:4] for topic in answer.responses for each in topic.partitions]
    errors = {each.error_code for each in parts}
    assert len(parts) == 4 and errors == {NONE}, f"{len(parts)} parts with errors {errors}"
    return f"{len(parts)} answers"


def _fetch_committed(connect: Callable[[], Line], partitions: Partitions) -> str:
    """Acquire what is committed, which is given up with the session."""
    with connect() as line:
        _set_start(line, COMMITTED_GROUP, WIDE, len(partitions))
        member = ShareMember(line, COMMITTED_GROUP)
        member.fetch(partitions)
        answer = member.fetch(most=MOST_LOCKS)
        member.acknowledge((), final=True)
    ranges = [len(each.acquired_records) for topic in answer.responses for each in topic.partitions]
    assert sum(ranges), "no record is acquired"
    return f"{sum(ranges)} ranges of {len(ranges)} partitions"


def _use_offsets(connect: Callable[[], Line], topics: Sequence[str]) -> str:
    make = request_builders(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1)
    asked = make.DescribeShareGroupOffsetsRequestGroup(group_id=GROUP_OF_MANY_TOPICS, topics=None)
    named = request_builders(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0).DeleteShareGroupOffsetsRequestTopic
    with connect() as line:
        begun = _set_starts(line, GROUP_OF_MANY_TOPICS, topics)
        described = line.request(
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
            1,
            "DescribeShareGroupOffsetsRequest",
            ANSWER_S,
            groups=(asked,),
        )
        deleted = line.request(
            ApiKey.DELETE_SHARE_GROUP_OFFSETS,
            0,
            "DeleteShareGroupOffsetsRequest",
            ANSWER_S,
            group_id=GROUP_OF_MANY_TOPICS,
            topics=tuple(named(topic_name=each) for each in topics),
        )
    assert begun is not None and described is not None and deleted is not None, "no answer"
    sizes = [len(each) for each in (begun.responses, described.groups[0].topics, deleted.responses)]
    assert sizes == [len(topics)] * 3, f"{sizes} topics of {len(topics)} are answered"
    codes = [each.error_code for topic in begun.responses for each in topic.partitions]
    codes += [each.error_code for each in (*described.groups, *deleted.responses)]
    assert set(codes) == {NONE}, f"errors {set(codes)}"
    return f"answers of {sizes} topics"


def _join_and_leave(connect: Callable[[], Line], api_key: ApiKey, topics: Sequence[str]) -> str:
    member_id, is_share = str(uuid4()), api_key == ApiKey.SHARE_GROUP_HEARTBEAT
    more = {} if is_share else {"rebalance_timeout": timedelta(minutes=1), "topic_partitions": ()}

    def beat(line: Line, epoch: int) -> Any:
        return line.request(
            api_key,
            1,
            "ShareGroupHeartbeatRequest" if is_share else "ConsumerGroupHeartbeatRequest",
            ANSWER_S,
            group_id=GROUP_OF_MANY_TOPICS + api_key.name,
            member_id=member_id,
            member_epoch=epoch,
            rack_id=None,
            subscribed_topic_names=None if epoch < 0 else tuple(topics),
            **more,
        )

    with connect() as line:
        joined, left = beat(line, 0), beat(line, FINAL_EPOCH)
    assert joined is not None and left is not None, "no answer"
    assert (joined.error_code, left.error_code) == (NONE, NONE), f"errors {joined} and {left}"
    return "joined and left"


def _set_start(line: Line, group: str, topic: str, partitions: int) -> None:
    """Set the start offset of a topic's first partitions to 0. Raise AssertionError if one is refused."""
    answer = _set_starts(line, group, [topic], partitions)
    assert answer is not None and answer.error_code == NONE, f"no offset is set: {answer}"
    for each in answer.responses[0].partitions:
        assert each.error_code == NONE, f"no offset is set: {each}"


def _set_starts(line: Line, group: str, topics: Sequence[str], partitions: int = 1) -> Any:
    """Set the start offset of each topic's first partitions to 0, and return the answer."""
    make = request_builders(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0)
    starts = tuple(
        make.AlterShareGroupOffsetsRequestPartition(partition_index=each, start_offset=0)
        for each in range(partitions)
    )
    named = tuple(
        make.AlterShareGroupOffsetsRequestTopic(topic_name=each, partitions=starts) for each in topics
    )
    return line.request(
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        0,
        "AlterShareGroupOffsetsRequest",
        ANSWER_S,
        group_id=group,
        topics=named,
    )


def _use_session(connect: Callable[[], Line], partitions: Partitions) -> str:
    with connect() as line:
        member = ShareMember(line, SHARE_GROUP)
        opened = member.fetch(partitions)
        again = member.fetch()
        few = partitions[: len(partitions) // PARTS_OF_ACKNOWLEDGED]
        said = member.acknowledge(few, [(0, 0, (ACCEPT,))])
        fewer = member.fetch(forgotten=partitions)
        member.acknowledge(few, [(0, 0, (ACCEPT,))], final=True)
    sizes = [sum(len(topic.partitions) for topic in each.responses) for each in (opened, again, said, fewer)]
    assert sizes[2] == len(few), f"{sizes[2]} of {len(few)} partitions are answered"
    return f"answers of {sizes} partitions"


def _by_topic(partitions: Partitions) -> Iterable[tuple[UUID, list[int]]]:
    topics: dict[UUID, list[int]] = {}
    for topic_id, index in partitions:
        topics.setdefault(topic_id, []).append(index)
    return topics.items()
