"""Floods of connections: silent, short-lived, half-closed, at every port, and until a node runs out of files."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import Final

from raftlog.protocol.apis import APIS, ApiKey
from raftlog_chaos.attacks.registry import attack
from raftlog_chaos.attacks.target import (
    ELSEWHERE,
    Line,
    Port,
    Target,
    compact,
    counted,
    create_topic,
    delete_topics,
    for_seconds,
    framed,
    head,
    outcomes_of,
    raw,
)

API_VERSIONS: Final = 18
HELLO: Final = raw(API_VERSIONS, 3, compact("x") + compact("1") + b"\0")


def _hold(target: Target, port: Port, count: int, seconds: float, nodes: tuple[int, ...] = (1,)) -> str:
    """Open connections at once and send no bytes; return their states after a while."""
    with contextlib.ExitStack() as held:
        lines: list[Line] = []
        for node in nodes:
            lines += held.enter_context(target.rush(count // len(nodes), port, node))
        time.sleep(seconds)
        words = counted(outcomes_of(lines[:: max(1, len(lines) // 100)], 0.5))
        return f"{len(lines)} begun; of a hundred of them {words}"


@attack("kafka", shape="cold")
def every_schema_at_once(target: Target) -> str:
    """One frame of every API and version in a single write does not hold the loop while their schemas are loaded."""
    frames = [
        framed(head(key, version) + b"\0" * 64)
        for key in APIS
        for version in range(APIS[key].min_version, APIS[key].max_version + 1)
        if key not in (ApiKey.PRODUCE, ApiKey.FETCH)
    ]
    with target.line() as line, target.lines(len(frames)) as others:
        line.send(b"".join(frames))
        for other, frame in zip(others, frames, strict=False):
            other.send(frame)
        return counted(outcomes_of(others, 8))


@attack("kafka", within_s=30)
def silent_connections(target: Target) -> str:
    """Three thousand silent connections leave room for clients, brokers and logs."""
    return _hold(target, "kafka", 3_000, 3)


@attack("controller", within_s=30)
def silent_channels(target: Target) -> str:
    """Two thousand and five hundred silent connections at the controller's port do not lock voters and brokers out."""
    return _hold(target, "controller", 2_500, 4)


@attack("http", within_s=30)
def silent_http_connections(target: Target) -> str:
    """A thousand silent HTTP connections leave room for health checks."""
    return _hold(target, "http", 1_000, 2)


@attack("kafka", within_s=40, shape="few files")
def files_run_out_at_the_kafka_port(target: Target) -> str:
    """With 1,024 files, 1,500 connections at a broker's port leave it the files that it needs itself."""
    return _hold(target, "kafka", 1_500, 4)


@attack("controller", within_s=40, shape="few files")
def files_run_out_at_the_controllers_port(target: Target) -> str:
    """With 1,024 files, 1,500 connections at each controller's port end no voter: its journal needs files too."""
    return _hold(target, "controller", 4_500, 4, (1, 2, 3))


@attack("http", within_s=40, shape="few files")
def files_run_out_at_the_http_port(target: Target) -> str:
    """With 1,024 files, 1,500 connections at the HTTP port leave the rest of the node alone."""
    return _hold(target, "http", 1_500, 3)


@attack("kafka", within_s=40, shape="few files")
def files_run_out_while_logs_roll(target: Target) -> str:
    """With 1,024 files, a topic can still be made and written while connections are all that is allowed."""
    lines = []
    try:
        for number in range(1_500):
            try:
                lines.append(target.line("kafka", 1 + number % 3))
            except OSError:
                break
        made = create_topic(target, "attack-rolls")
        time.sleep(2)
        return (
            f"{len(lines)} accepted; a topic: {made}; its deletion: {delete_topics(target, ['attack-rolls'])}"
        )
    finally:
        for each in lines:
            each.close(reset=True)


@attack("kafka", within_s=20)
def connections_come_and_go(target: Target) -> str:
    """Ten thousand connections, half of them reset at once, half after a request, cost no more than their time."""
    going_on, came, refused = for_seconds(5), 0, 0
    while going_on() and came < 10_000:
        try:
            line = target.line("kafka", 1 + came % 3)
        except OSError:
            refused += 1
            continue
        came += 1
        if came % 2:
            line.send(HELLO)
        line.close(reset=came % 4 < 2)
    return f"{came} came, {refused} refused"


@attack("controller", within_s=20)
def channels_come_and_go(target: Target) -> str:
    """Thousands of short connections at the controller's port neither depose the controller nor fill its log."""
    going_on, came = for_seconds(5), 0
    while going_on() and came < 8_000:
        try:
            line = target.line("controller", 1 + came % 3)
        except OSError:
            continue
        came += 1
        if came % 2:
            line.send(b"\0\0\0\5" + came.to_bytes(5, "big"))
        line.close(reset=came % 4 < 2)
    return f"{came} came"


@attack("kafka")
def half_closed_connections(target: Target) -> str:
    """Half-closed connections, which still read, are answered and closed, or closed."""
    with target.lines(500) as lines:
        for line in lines:
            line.send(HELLO)
            line.socket.shutdown(socket.SHUT_WR)
        words = outcomes_of(lines, 2)
        for line in lines:
            line.read(0.01)
        return counted(words)


@attack("kafka", within_s=20)
def connections_beyond_the_backlog(target: Target) -> str:
    """A thousand connections opened at once and never accepted in a hurry do not starve later connections."""
    with target.rush(1_000), target.line(source=ELSEWHERE) as line:
        began = time.monotonic()
        line.send(HELLO)
        return f"the next one: {line.outcome(5)} after {time.monotonic() - began:.1f} s"
