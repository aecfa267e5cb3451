"""Growth of a cluster's permanent state: topics, partitions, configs, offsets, up to the limits."""

from __future__ import annotations

import struct
from typing import Final

from raftlog_chaos.attacks.registry import attack
from raftlog_chaos.attacks.target import (
    ELSEWHERE,
    Target,
    array,
    compact,
    counted,
    create_topic,
    delete_topics,
    expect,
    for_seconds,
    outcomes_of,
    raw,
    topics_made,
    varint,
)

METADATA, CREATE_TOPICS, CREATE_PARTITIONS, ALTER_REASSIGNMENTS = 3, 19, 37, 45
INCREMENTAL_ALTER_CONFIGS, ELECT_LEADERS, OFFSET_COMMIT, DELETE_GROUPS = 44, 43, 8, 42
TIMEOUT: Final = struct.pack(">i", 8_000)
TOPIC, GROUP = b"\2", b"\x20"
SET, DELETE, APPEND = b"\0", b"\1", b"\2"


def _topic(name: str, partitions: int = 1, replicas: int = 1, rest: bytes = b"\1\1\0") -> bytes:
    return compact(name) + struct.pack(">ih", partitions, replicas) + rest


def _could_be_made(count: int) -> bytes:
    """Return a CreateTopics that only asks whether so many could be made."""
    names = (f"attack-with-a-name-of-thirty-letters-{number}" for number in range(count))
    return raw(CREATE_TOPICS, 7, array([_topic(name, 1, 3) for name in names]) + TIMEOUT + b"\1\0")


def _clean(target: Target) -> str:
    """Delete everything that attacks created."""
    left = topics_made(target)
    return f"{len(left)} made, deletion: {delete_topics(target, left)}" if left else "none made"


def _alter(kind: bytes, name: str, operations: list[tuple[str, bytes, str]]) -> bytes:
    """Return an IncrementalAlterConfigs of one resource."""
    ops = array([compact(key) + op + compact(value) + b"\0" for key, op, value in operations])
    return raw(INCREMENTAL_ALTER_CONFIGS, 1, array([kind + compact(name) + ops + b"\0"]) + b"\0\0")


@attack("kafka", within_s=90)
def a_hundred_thousand_topics_at_once(target: Target) -> str:
    """CreateTopics for a hundred thousand topics is decided in turns, or refused; the controller leads on."""
    only_asked = _could_be_made(100_000)
    with target.lines(3) as lines:
        for line in lines:
            line.send(only_asked)
        asked = counted(outcomes_of(lines, 15))
    with target.line() as line:
        line.send(
            raw(
                CREATE_TOPICS,
                7,
                array([_topic(f"attack-with-a-name-of-thirty-letters-{n}") for n in range(20_000)])
                + TIMEOUT
                + b"\0\0",
            )
        )
        made = line.outcome(15)
    return f"only asked: {asked}; made: {made}; {_clean(target)}"


@attack("kafka", within_s=90)
def requests_of_many_objects_on_many_connections(target: Target) -> str:
    """Twenty requests that become twenty megabytes of objects each are handled one at a time."""
    only_asked = _could_be_made(20_000)
    with target.lines(20) as lines:
        for line in lines:
            line.send(only_asked)
        return counted(outcomes_of(lines, 60))


@attack("kafka", within_s=90)
def topics_made_by_asking_for_them(target: Target) -> str:
    """Metadata that names thousands of topics to be created by that is bounded, and what it makes can be deleted."""
    with target.lines(4) as lines:
        for number, line in enumerate(lines):
            names = [bytes(16) + compact(f"attack-auto-{number}-{n}") + b"\0" for n in range(500)]
            line.send(raw(METADATA, 12, array(names) + b"\1\0\0"))
        words = counted(outcomes_of(lines, 15))
    return f"{words}; {_clean(target)}"


@attack("kafka", within_s=60)
def impossible_numbers_of_partitions(target: Target) -> str:
    """Topics of a million partitions, replicas on no broker, and lists of very many replicas are refused."""
    made = create_topic(target, "attack-parts")
    many = array([struct.pack(">i", n) + varint(2) + struct.pack(">i", 1) + b"\0" for n in range(6_000)])
    wide = array([struct.pack(">i", 0) + varint(100_001) + struct.pack(">i", 1) * 100_000 + b"\0"])
    frames = [
        raw(CREATE_TOPICS, 7, array([_topic("attack-large", count, replicas)]) + TIMEOUT + b"\0\0")
        for count, replicas in ((2**31 - 1, 1), (1_000_000, 3), (-2, 1), (0, 1), (1, 32767), (1, -2), (1, 0))
    ]
    frames += [
        raw(CREATE_TOPICS, 7, array([_topic("attack-large", -1, -1, each + b"\1\0")]) + TIMEOUT + b"\0\0")
        for each in (many, wide)
    ]
    frames += [
        raw(
            CREATE_PARTITIONS,
            3,
            array([compact("attack-parts") + struct.pack(">i", count) + b"\0\0"]) + TIMEOUT + b"\0\0",
        )
        for count in (2**31 - 1, 1_000_000, 0, -1, 1)
    ]
    with target.lines(len(frames)) as lines:
        for line, frame in zip(lines, frames, strict=False):
            line.send(frame)
        words = counted(outcomes_of(lines, 15))
    return f"made: {made}; {words}; {_clean(target)}"


@attack("kafka", within_s=60)
def configs_of_groups_that_do_not_exist(target: Target) -> str:
    """Configs of hundreds of made-up groups with names of a megabyte are refused: no snapshot could hold them."""
    names = [f"{number}-" + "g" * 1_000_000 for number in range(100)]
    key = "consumer.session.timeout.ms"
    words = []
    with target.line() as line:
        for name in names:
            words.append(
                "no answer" if line.ask(_alter(GROUP, name, [(key, SET, "45000")]), 5) is None else "answered"
            )
    with target.line(source=ELSEWHERE) as line:
        for name in names:
            if line.ask(_alter(GROUP, name, [(key, DELETE, "")]), 5) is None:
                break
    return counted(words)


@attack("kafka", within_s=60)
def lists_that_grow_by_appending(target: Target) -> str:
    """A list config that is appended to again and again, 30 KB at a time, reaches a bound."""
    key = "leader.replication.throttled.replicas"
    words = []
    with target.line() as line:
        for number in range(60):
            more = ",".join(f"{n}:{n % 3 + 1}" for n in range(number * 3_000, number * 3_000 + 3_000))
            words.append(
                "no answer"
                if line.ask(_alter(TOPIC, target.topic, [(key, APPEND, more)]), 5) is None
                else "answered"
            )
        line.ask(_alter(TOPIC, target.topic, [(key, DELETE, "")]), 5)
    return counted(words)


@attack("kafka", within_s=40)
def a_config_altered_again_and_again(target: Target) -> str:
    """Thousands of alterations of one config are taken one by one, and the metadata stays as small as it was."""
    going_on, altered = for_seconds(5), 0
    with target.line() as line:
        while going_on() and altered < 4_000:
            frames = [
                _alter(TOPIC, target.topic, [("retention.ms", SET, str(600_000_000 + altered + n))])
                for n in range(20)
            ]
            line.send(b"".join(frames))
            altered += sum(line.receive(3) is not None for _ in frames)
        line.ask(_alter(TOPIC, target.topic, [("retention.ms", DELETE, "")]), 5)
    return f"{altered} alterations"


@attack("kafka", within_s=60)
def a_topic_made_and_deleted_again_and_again(target: Target) -> str:
    """A topic that is created and deleted as fast as possible leaves neither files nor memory behind."""
    going_on, rounds = for_seconds(6), 0
    while going_on() and rounds < 150:
        create_topic(target, "attack-again")
        delete_topics(target, ["attack-again"])
        rounds += 1
    return f"{rounds} rounds; {_clean(target)}"


@attack("kafka", within_s=40)
def the_longest_name_of_a_topic(target: Target) -> str:
    """A topic whose name has 249 characters is created and deleted as any other, though file names end at 255 bytes."""
    name = "n" * 249
    made, deleted = create_topic(target, name), delete_topics(target, [name])
    expect(deleted == "answered", "the deletion of a topic with 249 characters is not answered")
    return f"{made}, {deleted}; {_clean(target)}"


@attack("kafka", within_s=60)
def reassignments_begun_and_taken_back(target: Target) -> str:
    """Moves of a topic's partitions that are begun and cancelled in a hurry end where they began."""
    going_on, rounds = for_seconds(5), 0

    def move(replicas: bytes) -> bytes:
        part = struct.pack(">i", 0) + replicas + b"\0"
        return raw(
            ALTER_REASSIGNMENTS, 0, TIMEOUT + array([compact(target.topic) + array([part]) + b"\0"]) + b"\0"
        )

    begun = [move(b"\3" + struct.pack(">ii", *pair)) for pair in ((1, 2), (1, 3), (2, 3), (3, 1))]
    with target.line() as line:
        while going_on() and rounds < 200:
            line.ask(begun[rounds % 4], 5)
            line.ask(move(b"\0"), 5)
            rounds += 1
        line.ask(move(b"\4" + struct.pack(">iii", 1, 2, 3)), 5)
    return f"{rounds} rounds"


@attack("kafka", within_s=40)
def elections_again_and_again(target: Target) -> str:
    """A thousand elections of preferred leaders change no leader where none is due."""
    everything = raw(ELECT_LEADERS, 2, b"\0\0" + TIMEOUT + b"\0")
    with target.lines(4) as lines:
        for line in lines:
            line.send(everything * 300)
        answers = 0
        for line in lines:
            while line.receive(2) is not None and answers < 1_200:
                answers += 1
        return f"{answers} answered"


@attack("kafka", within_s=60)
def offsets_of_made_up_groups(target: Target) -> str:
    """Commits of two hundred made-up groups with notes of four kilobytes each are bounded, and can be deleted again."""
    part = struct.pack(">iqi", 0, 1, -1) + compact("m" * 4_000) + b"\0"
    parts = [struct.pack(">i", n) + part[4:] for n in range(3)]
    groups = [f"attack-{number}" for number in range(200)]
    with target.lines(3) as lines:
        frames = [
            raw(
                OFFSET_COMMIT,
                8,
                compact(group)
                + struct.pack(">i", -1)
                + compact("")
                + b"\0"
                + array([compact(topic) + array(parts) + b"\0" for topic in (target.topic, target.compacted)])
                + b"\0",
            )
            for group in groups
        ]
        for line in lines:
            line.send(b"".join(frames))
        answered = 0
        for line in lines:
            while line.receive(3) is not None:
                answered += 1
    with target.lines(3, source=ELSEWHERE) as lines:
        for line in lines:
            line.send(raw(DELETE_GROUPS, 2, array([compact(group) for group in groups]) + b"\0"))
        return f"{answered} answered; deletion: {counted(outcomes_of(lines, 8))}"
