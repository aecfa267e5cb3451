"""Descriptions of a cluster; elections, reassignments, SCRAM credentials and delegation tokens on one node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from raftlog_chaos.conformance.history import history
from raftlog_chaos.conformance.session import TIMEOUT_MS, Session

Fields = Mapping[str, Any]


def me(s: Session) -> int:
    """Return the id of the broker."""
    return int(s.query("Metadata", 9, topics=[])["brokers"][0]["node_id"])


# --- DescribeCluster


@history({f"v{version}": version for version in range(3)})
def cluster_in(s: Session, version: int) -> None:
    """The brokers, the controller and the cluster's id, in all versions."""
    s.ask("DescribeCluster", version)
    s.ask("DescribeCluster", version, include_cluster_authorized_operations=True)


@history({str(kind): kind for kind in (0, 1, 2, 3, -1)})
def cluster_endpoints(s: Session, kind: int) -> None:
    """A broker describes brokers; for controllers the controllers are to be asked."""
    s.ask("DescribeCluster", 2, endpoint_type=kind)


@history()
def fenced_brokers(s: Session) -> None:
    """Fenced brokers are listed if they are asked for."""
    s.ask("DescribeCluster", 2, include_fenced_brokers=True)


# --- DescribeLogDirs


def log_dirs(s: Session, topics: Sequence[Fields] | None, version: int, mine: str) -> None:
    """Observe what DescribeLogDirs says of one topic; folders and their disks differ."""
    answer = s.query("DescribeLogDirs", version, topics=topics)
    s.observe("the error", answer.get("error_code", "NONE"))
    for each in answer["results"]:
        found = [topic for topic in each["topics"] if topic["name"] == mine]
        sizes = {name: each[name] > 0 for name in ("total_bytes", "usable_bytes") if name in each}
        s.observe("a folder", {"error_code": each["error_code"], "topics": found} | sizes)


@history({f"v{version}": version for version in range(1, 5)})
def log_dirs_in(s: Session, version: int) -> None:
    """The partitions of a topic and their sizes; a new partition is empty."""
    name = s.topic(partitions=2)
    log_dirs(s, [{"topic": name, "partitions": [0, 1]}], version, name)


LOG_DIRS: Final[Mapping[str, Callable[[Session, str], Sequence[Fields] | None]]] = {
    "all": lambda s, topic: None,
    "none": lambda s, topic: [],
    "no partition": lambda s, topic: [{"topic": topic, "partitions": []}],
    "an unknown partition": lambda s, topic: [{"topic": topic, "partitions": [0, 5]}],
    "a partition of -1": lambda s, topic: [{"topic": topic, "partitions": [-1]}],
    "a partition twice": lambda s, topic: [{"topic": topic, "partitions": [0, 0]}],
    "a topic twice": lambda s, topic: [{"topic": topic, "partitions": [0]}] * 2,
    "an unknown topic": lambda s, topic: [{"topic": s.name("missing"), "partitions": [0]}],
}


@history(LOG_DIRS)
def log_dirs_of(s: Session, topics: Callable[[Session, str], Sequence[Fields] | None]) -> None:
    """Unknown topics and partitions are left out."""
    name = s.topic(partitions=2)
    log_dirs(s, topics(s, name), 4, name)


@history()
def log_dirs_with_records(s: Session) -> None:
    """A partition's size is that of its batches."""
    name = s.topic()
    for value in (b"a", b"x" * 1000):
        s.produce(name, s.batch(value))
    log_dirs(s, [{"topic": name, "partitions": [0]}], 4, name)


# --- DescribeQuorum

QUORUM: Final = "__cluster_metadata"


@history({f"v{version}": version for version in range(3)})
def quorum_in(s: Session, version: int) -> None:
    """The one voter leads, in all versions."""
    asked = [{"topic_name": QUORUM, "partitions": [{"partition_index": 0}]}]
    answer = s.query("DescribeQuorum", version, topics=asked)
    found = answer["topics"][0]["partitions"][0]
    s.observe("the error", [answer["error_code"], found["error_code"]])
    s.observe("the leader", found["leader_id"])
    s.observe("has records", found["high_watermark"] > 0)
    for name in ("current_voters", "observers"):
        s.observe(name, [each["replica_id"] for each in found[name]])


QUORUMS: Final[Mapping[str, Sequence[Fields]]] = {
    "none": [],
    "another topic": [{"topic_name": "a", "partitions": [{"partition_index": 0}]}],
    "another partition": [{"topic_name": QUORUM, "partitions": [{"partition_index": 1}]}],
    "no partition": [{"topic_name": QUORUM, "partitions": []}],
}


@history(QUORUMS)
def quorum_of(s: Session, topics: Sequence[Fields]) -> None:
    """There is one partition to ask about."""
    s.ask("DescribeQuorum", 2, topics=topics)


# --- ListConfigResources


def resources(s: Session, version: int, mine: Sequence[str], **fields: Any) -> None:
    """Observe which of some resources are listed."""
    answer = s.query("ListConfigResources", version, **fields)
    s.observe("the error", answer["error_code"])
    found = answer["config_resources"]
    listed = {f"{each.get('resource_type', 16)} {each['resource_name']}" for each in found}
    s.observe("listed", sorted(each for each in listed if each.partition(" ")[2] in mine))


RESOURCE_TYPES: Final[Mapping[str, Sequence[int]]] = {
    **{str(kind): [kind] for kind in (2, 4, 8, 16, 32)},
    **{f"unknown, {kind}": [kind] for kind in (0, 1, 3, 64, -1)},
    "all": [],
    "two": [2, 32],
    "twice": [2, 2],
    "known and unknown": [2, 3],
}


@history(RESOURCE_TYPES)
def config_resources(s: Session, types: Sequence[int]) -> None:
    """Topics, brokers and their loggers, groups and client metrics that have configs."""
    node, topic, group, metrics = str(me(s)), s.topic(), s.name("group"), s.name("metrics")
    for kind, name, config, value in (
        (32, group, "consumer.session.timeout.ms", "50000"),
        (16, metrics, "interval.ms", "1000"),
    ):
        configs = [{"name": config, "config_operation": 0, "value": value}]
        change = {"resource_type": kind, "resource_name": name, "configs": configs}
        s.query("IncrementalAlterConfigs", 1, resources=[change])
    s.wait(
        "they are listed",
        lambda: (
            {group, metrics}
            <= {each["resource_name"] for each in s.query("ListConfigResources", 1)["config_resources"]}
        ),
    )
    resources(s, 1, (node, topic, group, metrics), resource_types=types)
    if not types:
        resources(s, 0, (node, topic, group, metrics))
    for kind, name in ((32, group), (16, metrics)):
        emptied = [{"resource_type": kind, "resource_name": name, "configs": []}]
        s.query("AlterConfigs", 2, resources=emptied)


# --- elections


@history({f"v{version}": version for version in range(3)})
def election_in(s: Session, version: int) -> None:
    """The only replica leads already: no election is needed."""
    name = s.topic(partitions=2)
    wanted = [{"topic": name, "partitions": [0, 1]}]
    s.ask("ElectLeaders", version, topic_partitions=wanted, election_type=0, timeout=TIMEOUT_MS)


ELECTIONS: Final[Mapping[str, Callable[[Session, str], tuple[int, Sequence[Fields] | None]]]] = {
    "unclean": lambda s, topic: (1, [{"topic": topic, "partitions": [0]}]),
    "of an unknown kind": lambda s, topic: (2, [{"topic": topic, "partitions": [0]}]),
    "of kind -1": lambda s, topic: (-1, [{"topic": topic, "partitions": [0]}]),
    "of none": lambda s, topic: (0, []),
    "of no partition": lambda s, topic: (0, [{"topic": topic, "partitions": []}]),
    "of an unknown partition": lambda s, topic: (0, [{"topic": topic, "partitions": [0, 5]}]),
    "of partition -1": lambda s, topic: (0, [{"topic": topic, "partitions": [-1]}]),
    "of an unknown topic": lambda s, topic: (0, [{"topic": s.name("missing"), "partitions": [0]}]),
    "of a partition twice": lambda s, topic: (0, [{"topic": topic, "partitions": [0, 0]}]),
    "of a topic twice": lambda s, topic: (0, [{"topic": topic, "partitions": [0]}] * 2),
}


@history(ELECTIONS)
def election(s: Session, asked: Callable[[Session, str], tuple[int, Sequence[Fields] | None]]) -> None:
    """Each partition is answered by itself."""
    kind, wanted = asked(s, s.topic(partitions=2))
    s.ask("ElectLeaders", 2, topic_partitions=wanted, election_type=kind, timeout=TIMEOUT_MS)


@history()
def election_of_all(s: Session) -> None:
    """An election for all partitions returns only the partitions that needed an election."""
    s.topic(partitions=2)
    s.ask("ElectLeaders", 2, topic_partitions=None, election_type=0, timeout=TIMEOUT_MS)


# --- reassignments

Moves = Callable[[Session, str, int], Sequence[Fields]]


def move(topic: str, index: int, replicas: Sequence[int] | None) -> Fields:
    """Return the part of a request that moves a partition."""
    return {"name": topic, "partitions": [{"partition_index": index, "replicas": replicas}]}


MOVES: Final[Mapping[str, Moves]] = {
    "nothing": lambda s, topic, node: [],
    "no partition": lambda s, topic, node: [{"name": topic, "partitions": []}],
    "to where it is": lambda s, topic, node: [move(topic, 0, [node])],
    "nowhere": lambda s, topic, node: [move(topic, 0, [])],
    "to an unknown broker": lambda s, topic, node: [move(topic, 0, [node + 70])],
    "to an unknown broker too": lambda s, topic, node: [move(topic, 0, [node, node + 70])],
    "to -1": lambda s, topic, node: [move(topic, 0, [-1])],
    "to a broker twice": lambda s, topic, node: [move(topic, 0, [node, node])],
    "back, though it does not move": lambda s, topic, node: [move(topic, 0, None)],
    "an unknown partition": lambda s, topic, node: [move(topic, 5, [node])],
    "an unknown partition back": lambda s, topic, node: [move(topic, 5, None)],
    "a partition of -1": lambda s, topic, node: [move(topic, -1, [node])],
    "an unknown topic": lambda s, topic, node: [move(s.name("missing"), 0, [node])],
    "an empty topic": lambda s, topic, node: [move("", 0, [node])],
    "a topic twice": lambda s, topic, node: [move(topic, 0, [node])] * 2,
    "good and bad": lambda s, topic, node: [move(topic, 0, [node]), move(s.name("missing"), 0, [node])],
}


@history(MOVES)
def reassignment(s: Session, moves: Moves) -> None:
    """Each partition is answered by itself; a move to where it is ends at once."""
    name = s.topic()
    s.ask("AlterPartitionReassignments", 0, topics=moves(s, name, me(s)), timeout=TIMEOUT_MS)
    wanted = [{"name": name, "partition_indexes": [0]}]
    s.ask("ListPartitionReassignments", 0, topics=wanted, timeout=TIMEOUT_MS)


@history({"allowed": True, "forbidden": False})
def change_of_factor(s: Session, allowed: bool) -> None:
    """A move that would change how many replicas there are is refused where that is forbidden."""
    name, node = s.topic(), me(s)
    s.ask(
        "AlterPartitionReassignments",
        1,
        topics=[move(name, 0, [node, node + 70])],
        allow_replication_factor_change=allowed,
        timeout=TIMEOUT_MS,
    )


MOVING: Final[Mapping[str, Callable[[Session, str], Sequence[Fields] | None]]] = {
    "all": lambda s, topic: None,
    "none": lambda s, topic: [],
    "no partition": lambda s, topic: [{"name": topic, "partition_indexes": []}],
    "an unknown partition": lambda s, topic: [{"name": topic, "partition_indexes": [5]}],
    "an unknown topic": lambda s, topic: [{"name": s.name("missing"), "partition_indexes": [0]}],
}


@history(MOVING)
def reassignments(s: Session, topics: Callable[[Session, str], Sequence[Fields] | None]) -> None:
    """Partitions that do not move are left out."""
    s.ask("ListPartitionReassignments", 0, topics=topics(s, s.topic()), timeout=TIMEOUT_MS)


# --- SCRAM

SHA_256: Final = 1
SHA_512: Final = 2


def credential(name: str, mechanism: int = SHA_256, iterations: int = 4096, **fields: Any) -> Fields:
    """Return a credential to be stored."""
    secret = {"salt": b"salt-salt-salt", "salted_password": b"p" * (32 if mechanism == SHA_256 else 64)}
    return {"name": name, "mechanism": mechanism, "iterations": iterations} | secret | fields


def stored(s: Session, name: str) -> Any:
    """Look which credentials a user has."""
    answer = s.query("DescribeUserScramCredentials", 0, users=[{"name": name}])
    return answer["results"][0]["credential_infos"]


@history({"SHA-256": SHA_256, "SHA-512": SHA_512})
def credentials(s: Session, mechanism: int) -> None:
    """A credential is stored, described by its mechanism and iterations, replaced, and deleted."""
    name = s.name("user")
    for iterations in (4096, 5000):
        s.ask(
            "AlterUserScramCredentials",
            0,
            upsertions=[credential(name, mechanism, iterations)],
            deletions=[],
        )
        s.wait("it is stored", lambda: stored(s, name) and stored(s, name)[0]["iterations"] == iterations)  # noqa: B023
        s.ask("DescribeUserScramCredentials", 0, users=[{"name": name}])
    s.ask(
        "AlterUserScramCredentials",
        0,
        deletions=[{"name": name, "mechanism": mechanism}],
        upsertions=[],
    )
    s.wait("it is gone", lambda: not stored(s, name))
    s.ask("DescribeUserScramCredentials", 0, users=[{"name": name}])


Change = Callable[[str], tuple[Sequence[Fields], Sequence[Fields]]]
"""Credentials of a user to be stored, and to be deleted."""
CREDENTIALS: Final[Mapping[str, Change]] = {
    "none": lambda name: ([], []),
    "an empty name": lambda name: ([credential("")], []),
    "an empty name's end": lambda name: ([], [{"name": "", "mechanism": SHA_256}]),
    "an unknown user's end": lambda name: ([], [{"name": name, "mechanism": SHA_256}]),
    "mechanism 0": lambda name: ([credential(name, 0)], []),
    "mechanism 3": lambda name: ([credential(name, 3)], []),
    "mechanism 3's end": lambda name: ([], [{"name": name, "mechanism": 3}]),
    "4095 iterations": lambda name: ([credential(name, iterations=4095)], []),
    "16384 iterations": lambda name: ([credential(name, iterations=16384)], []),
    "16385 iterations": lambda name: ([credential(name, iterations=16385)], []),
    "0 iterations": lambda name: ([credential(name, iterations=0)], []),
    "-1 iterations": lambda name: ([credential(name, iterations=-1)], []),
    "4096 iterations of SHA-512": lambda name: ([credential(name, SHA_512)], []),
    "no salt": lambda name: ([credential(name, salt=b"")], []),
    "no password": lambda name: ([credential(name, salted_password=b"")], []),
    "a short password": lambda name: ([credential(name, salted_password=b"x")], []),
    "twice": lambda name: ([credential(name), credential(name)], []),
    "two mechanisms": lambda name: ([credential(name), credential(name, SHA_512)], []),
    "stored and deleted": lambda name: ([credential(name)], [{"name": name, "mechanism": SHA_256}]),
    "one stored, the other deleted": lambda name: (
        [credential(name)],
        [{"name": name, "mechanism": SHA_512}],
    ),
    "deleted twice": lambda name: ([], [{"name": name, "mechanism": SHA_256}] * 2),
    "good and bad": lambda name: ([credential(name), credential(f"{name}-2", iterations=1)], []),
}


@history(CREDENTIALS)
def credentials_of(s: Session, change: Change) -> None:
    """A user's credentials are altered together or refused."""
    name = s.name("user")
    upsertions, deletions = change(name)
    answer = s.ask("AlterUserScramCredentials", 0, upsertions=upsertions, deletions=deletions)
    changed = {each["user"] for each in answer["results"] if each["error_code"] == "NONE"}
    if name in changed:
        s.wait("they are stored", lambda: stored(s, name))
        s.ask("DescribeUserScramCredentials", 0, users=[{"name": name}])
        given = [{"name": name, "mechanism": each["mechanism"]} for each in upsertions]
        s.query("AlterUserScramCredentials", 0, deletions=given, upsertions=[])


USERS: Final[Mapping[str, Callable[[str], Sequence[Fields]]]] = {
    "unknown": lambda name: [{"name": name}],
    "twice": lambda name: [{"name": name}, {"name": name}],
    "an empty name": lambda name: [{"name": ""}],
}


@history(USERS)
def users(s: Session, asked: Callable[[str], Sequence[Fields]]) -> None:
    """A user without credentials is not found, and a user that is named twice is refused."""
    s.ask("DescribeUserScramCredentials", 0, users=asked(s.name("user")))


# --- delegation tokens


@history({f"v{version}": version for version in range(1, 4)})
def token_in(s: Session, version: int) -> None:
    """Tokens are refused without authentication."""
    s.ask("CreateDelegationToken", version, renewers=[], max_lifetime=-1)
    s.ask("DescribeDelegationToken", version, owners=None)


@history({f"v{version}": version for version in (1, 2)})
def token_changed_in(s: Session, version: int) -> None:
    """Tokens are neither renewed nor expired without authentication."""
    s.ask("RenewDelegationToken", version, hmac=b"x" * 32, renew_period=-1)
    s.ask("ExpireDelegationToken", version, hmac=b"x" * 32, expiry_time_period=-1)
