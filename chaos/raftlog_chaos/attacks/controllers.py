"""Strangers at the controller's port: false MessagePack, unfinished handshakes, made-up proofs."""

from __future__ import annotations

import json
import random
import struct
import time
from typing import Any, Final

import msgspec

from raftlog.protocol.message_builders import request_builders
from raftlog.quorum.channel import PROTOCOL
from raftlog.quorum.handshake_messages import Challenge, decode_handshake
from raftlog_chaos.attacks.facts import ask
from raftlog_chaos.attacks.logins import authenticate, choose, is_served
from raftlog_chaos.attacks.registry import attack
from raftlog_chaos.attacks.target import (
    ClaimBroken,
    Line,
    Target,
    array,
    compact,
    counted,
    expect,
    for_seconds,
    never_read,
    outcomes_of,
    raw,
    request,
    send_each,
)

LENGTH: Final = struct.Struct(">I")
NONCE: Final = bytes(range(32))
LARGEST_HANDSHAKE: Final = 4 * 1024
CREATE_ACLS: Final = 30
ALTER_SCRAM: Final = 51
_encode: Final = msgspec.msgpack.Encoder().encode


def frame(payload: bytes) -> bytes:
    """Return bytes as a frame of a channel during its handshake."""
    return LENGTH.pack(len(payload)) + payload


def message(kind: str, *fields: Any) -> bytes:
    """Return a message of the handshake as a frame; see raftlog.quorum.channel."""
    return frame(_encode([f"raftlog {kind}", *fields]))


def hello(
    node: int = 2, kind: str = "raft", *, protocol: int = PROTOCOL, cluster: str = "", nonce: bytes = NONCE
) -> bytes:
    """Return a hello of a node that may be anybody."""
    return message("hello", protocol, kind, node, cluster, nonce)


KINDS: Final = ("raft", "rpc", "heartbeat", "observe")


@attack("controller")
def lying_messagepack(target: Target) -> str:
    """MessagePack that claims billions of elements, or is nested a thousand deep, closes its channel at once."""
    lies = [
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xc9\xff\xff\xff\xff\x01",
        b"\x91" * 4_000,
        b"\x81\xa1a" * 1_300,
        b"\x96" + _encode("raftlog hello") + b"\xdd\xff\xff\xff\xff",
        b"\x9f" + _encode("raftlog hello") * 15,
        b"\xc1",
        b"",
        _encode({"a": 1}),
        _encode(["raftlog welcome"]),
        _encode(["raftlog refusal", "r" * 4_000]),
        _encode(["raftlog proof", b"p" * 4_000]),
    ]
    return send_each(target, [frame(each) for each in lies] * 10, port="controller")


@attack("controller")
def impossible_channel_frames(target: Target) -> str:
    """Frames of no bytes, of more than a handshake has, or cut off, are refused before anything is kept of them."""
    sizes = (0, LARGEST_HANDSHAKE + 1, 1 << 24, 2**31, 2**32 - 1)
    frames = [LENGTH.pack(size) + b"x" * 100 for size in sizes] + [LENGTH.pack(4_000) + b"x" * 3_999, b"\0\0"]
    return send_each(target, frames * 20, port="controller")


@attack("controller")
def handshakes_that_lie(target: Target) -> str:
    """Hellos of made-up nodes, kinds and clusters, and proofs without knowledge, are refused with a reason."""
    chance = random.Random(3)
    frames = [
        hello(node, kind) + message("proof", chance.randbytes(32))
        for node in (-1, 0, 1, 2, 3, 99, 2**62)
        for kind in KINDS
    ]
    frames += [hello(protocol=each) for each in (0, PROTOCOL - 1, PROTOCOL + 1, -1, 2**62)]
    frames += [hello(kind=each) for each in ("", "raftraft", "x" * 3_000)]
    frames += [hello(cluster=each) for each in ("c" * 3_900, "\u0000", "another")]
    frames += [hello(nonce=each) for each in (b"", b"n", bytes(31), bytes(33), bytes(3_900))]
    frames += [
        hello() + hello(),
        message("proof", bytes(32)),
        message("welcome"),
        message("challenge", 1, "", NONCE, bytes(32)),
    ]
    frames += [
        hello() + message("proof", b""),
        hello() + message("proof", bytes(3_900)),
        hello() + message("welcome"),
    ]
    return send_each(target, frames * 3, port="controller")


@attack("controller", within_s=20)
def handshakes_that_stop_half_way(target: Target) -> str:
    """A thousand channels that stop after their hello are closed after the handshake timeout."""
    with target.lines(1_000, "controller") as lines:
        for number, line in enumerate(lines):
            line.send(hello(1 + number % 3, KINDS[number % 4]))
        time.sleep(5)
        return counted([_end(line) for line in lines])


def _end(line: Line) -> str:
    while line.read(0.02):
        pass
    return "closed" if line.closed else "still open"


@attack("controller", within_s=20)
def a_handshake_a_byte_at_a_time(target: Target) -> str:
    """Hellos that arrive a byte at a time are closed after the handshake timeout as well."""
    going_on, data = for_seconds(6), hello()
    sent = 0
    with target.lines(200, "controller") as lines:
        while going_on() and sent < len(data):
            for line in lines:
                line.send(data[sent : sent + 1], within_s=0.01)
            sent += 1
            time.sleep(0.15)
        return counted([_end(line) for line in lines])


@attack("controller", within_s=20)
def hellos_in_a_hurry(target: Target) -> str:
    """As many handshakes as a stranger can begin in five seconds do not cost the quorum its leader."""
    going_on, begun = for_seconds(5), 0
    while going_on():
        for node in target.nodes:
            try:
                with target.line("controller", node) as line:
                    line.send(hello(2) + message("proof", bytes(32)))
                    line.read(0.01)
                    begun += 1
            except OSError:
                continue
    return f"{begun} begun"


@attack("controller", within_s=20)
def challenges_that_nobody_reads(target: Target) -> str:
    """Channels that are written to and never read do not pile up answers, within their handshake or after it."""
    with target.lines(200, "controller") as lines:
        sent = never_read(lines, hello() * 100, seconds=4)
        return f"{sent // 1024} KiB taken, {counted([each.state for each in lines])}"


@attack("controller", within_s=40)
def megabytes_beyond_the_last_channel(target: Target) -> str:
    """Channels beyond the limit are closed, and their bytes are not kept."""
    with target.rush(2_100, "controller") as first:
        piece, taken = bytes(1 << 20), 0
        lines = first[-80:]
        for _ in range(8):
            for line in lines:
                taken += line.send(piece, within_s=0.05)
        return f"{taken >> 20} MiB taken on the last 80 of 2,100; {counted(outcomes_of(lines, 0.5))}"


@attack("controller", within_s=20)
def garbage_behind_a_hello(target: Target) -> str:
    """Random bytes behind a hello, in frames that look right, close the channel and cost a line of log."""
    chance = random.Random(4)
    frames = [hello() + frame(chance.randbytes(chance.randint(1, 200))) for _ in range(600)]
    return send_each(target, frames, port="controller")


@attack("controller", ci=True)
def text_that_is_no_text(target: Target) -> str:
    """MessagePack strings that are no UTF-8, in the tag or a field of a handshake, end their channel alone."""
    tag, kind = _encode("raftlog hello"), _encode("raft")
    bad = b"\xa4\xff\xfe\xfd\xfc"
    lies = [
        b"\x96" + tag[:9] + b"\xff\xff" + tag[11:] + b"\x01" + kind + b"\x02\xa0" + _encode(NONCE),
        b"\x96" + tag + b"\x01" + bad + b"\x02\xa0" + _encode(NONCE),
        b"\x96" + tag + b"\x01" + kind + b"\x02" + bad + _encode(NONCE),
        b"\x92" + _encode("raftlog refusal") + bad,
        b"\x91" + bad,
        bad,
    ]
    return "; ".join(
        send_each(target, [frame(each) for each in lies], port="controller", node=node)
        for node in target.nodes
    )


def _challenged(target: Target, node: int) -> Challenge:
    """Say hello to a controller; return its challenge, which names its directory to any client."""
    with target.line("controller", node) as line:
        line.send(hello())
        found = line.read()
    try:
        challenge = decode_handshake(found[LENGTH.size :])
    except msgspec.DecodeError as error:
        raise ClaimBroken(f"a hello is not answered by a challenge: {error}") from error
    expect(isinstance(challenge, Challenge), f"a hello is not answered by a challenge: {challenge}")
    assert isinstance(challenge, Challenge)
    return challenge


@attack("controller", within_s=30)
def voters_that_are_there_already(target: Target) -> str:
    """Hellos in the name and with the directory of each voter, without its proof, change neither leader nor links."""
    before = _leader(target)
    known = [_challenged(target, node) for node in target.nodes]
    frames = [
        message(
            "hello", PROTOCOL, kind, each.node_id, each.cluster_id, NONCE, 0, 2, directory, process, is_new
        )
        for each in known
        for kind in KINDS
        for directory, process in (
            (each.directory_id, each.incarnation),
            (each.directory_id, bytes(16)),
            (bytes(16), each.incarnation),
            (bytes(17), bytes(17)),
            (b"", b""),
        )
        for is_new in (False, True)
    ]
    proofs = [message("proof", bytes(32)), message("verdict", bytes(32), ""), b""]
    words = [
        send_each(target, [each + proof for each in frames], port="controller", node=node)
        for node in target.nodes
        for proof in proofs
    ]
    expect(_leader(target) == before, f"the leader was {before}, and is {_leader(target)}")
    return counted(words)


def _leader(target: Target) -> tuple[int, int]:
    """Return the leader of the quorum and its term."""
    answer = json.loads(ask(target.nodes[1], "/v1/quorum"))
    return int(answer["leader_id"]), int(answer["term"])


def _as_kafka_client(target: Target, node: int) -> list[str]:
    """Send a controllers' port a Kafka client's requests for control of the cluster; return the outcomes in words."""
    make = request_builders(CREATE_ACLS, 3)
    rule = make.AclCreation(
        resource_type=4,
        resource_name="kafka-cluster",
        resource_pattern_type=3,
        principal="User:mallory",
        host="*",
        operation=2,
        permission_type=3,
    )
    user = request_builders(ALTER_SCRAM, 0).ScramCredentialUpsertion(
        name="mallory", mechanism=1, iterations=4096, salt=bytes(24), salted_password=bytes(32)
    )
    asked = [
        request(18, 3, "ApiVersionsRequest", client_software_name="stranger", client_software_version="1"),
        request(60, 1, "DescribeClusterRequest", endpoint_type=2),
        request(CREATE_ACLS, 3, "CreateAclsRequest", creations=(rule,)),
        request(ALTER_SCRAM, 0, "AlterUserScramCredentialsRequest", deletions=(), upsertions=(user,)),
        raw(20, 4, array([compact(target.bystanders)]) + LENGTH.pack(5_000) + b"\0"),
    ]
    words = []
    for each in asked:
        with target.line("controller", node) as line:
            words.append("refused" if line.ask(each) is None and line.closed else "answered")
    return words


@attack("controller", ci=True)
def kafka_clients_at_the_controllers_port(target: Target) -> str:
    """A Kafka client at a controllers' port is refused whatever it requests, since it has no proof of identity."""
    words = [word for node in target.nodes for word in _as_kafka_client(target, node)]
    expect(set(words) == {"refused"}, f"a stranger was served at a controllers' port: {counted(words)}")
    return counted(words)


@attack("controller", shape="closed")
def users_made_at_the_controllers_port(target: Target) -> str:
    """A stranger creates no user and no ACL at the port without logins of a cluster that requires them."""
    words = [word for node in target.nodes for word in _as_kafka_client(target, node)]
    expect(set(words) == {"refused"}, f"a stranger was served at a controllers' port: {counted(words)}")
    with target.line("logins") as line:
        line.ask(choose("PLAIN"))
        line.ask(authenticate(b"\0mallory\0" + bytes(32)))
        expect(not is_served(line), "a stranger logged in as a user of his own")
    return counted(words)
