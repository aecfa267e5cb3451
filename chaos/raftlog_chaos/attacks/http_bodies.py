"""Bodies at the HTTP port: hostile JSON, endless streams, compressed bodies, bodies that arrive byte by byte."""

from __future__ import annotations

import gzip
import json
import time
import zlib
from typing import Final

from raftlog_chaos.attacks.http import request, statuses
from raftlog_chaos.attacks.registry import attack
from raftlog_chaos.attacks.target import Target, counted, delete_topics, for_seconds, topics_made

JSON: Final = "Content-Type: application/json\r\n"
CHUNKED: Final = JSON + "Transfer-Encoding: chunked\r\n"


def _cluster(target: Target) -> str:
    """Return the path of the cluster."""
    with target.line("http") as line:
        line.send(request("GET", "/v3/clusters", "Connection: close\r\n"))
        found = b""
        while more := line.read(2):
            found += more
    return "/v3/clusters/" + str(json.loads(found.partition(b"\r\n\r\n")[2])["data"][0]["cluster_id"])


def _records(target: Target) -> str:
    return f"{_cluster(target)}/topics/{target.topic}/records"


def _each(target: Target, requests: list[bytes], within_s: float = 3.0) -> str:
    with target.lines(len(requests), "http") as lines:
        for line, data in zip(lines, requests, strict=False):
            line.send(data)
        return counted([statuses(line, within_s, 3) for line in lines])


@attack("http", within_s=30)
def json_made_to_hurt(target: Target) -> str:
    """JSON nested a hundred thousand deep, numbers of a million digits and names repeated are refused in their time."""
    deep, digits = 100_000, b"9" * 900_000
    bodies = [
        b"[" * deep,
        b'{"a":' * deep,
        b"[" * deep + b"]" * deep,
        digits,
        b"-" + digits,
        b"1e" + digits[:100_000],
        b"0." + digits,
        b'{"topic_name":"' + b"\\ud800" * 100_000 + b'"}',
        b"{" + b",".join(b'"topic_name":"a"' for _ in range(50_000)) + b"}",
        b'{"topic_name":"a","partitions_count":' + digits[:5_000] + b"}",
        b'{"topic_name":"a","partitions_count":1e99999}',
        b'{"topic_name":"a","partitions_count":1e' + digits[:1_000] + b"}",
        b'{"topic_name":"a","partitions_count":2.0,"replication_factor":1e9999999999999999999}',
        b'{"topic_name":"a","configs":[' + b",".join([b'{"name":"x","value":"y"}'] * 30_000) + b"]}",
        b"\xff\xfe\x00\x00",
        b"\xef\xbb\xbf{}",
        b"\0" * 500_000,
    ]
    path = f"{_cluster(target)}/topics"
    requests = [request("POST", path, JSON, each) for each in bodies]
    requests += [request("PUT", f"{path}/{target.topic}/configs/retention.ms", JSON, each) for each in bodies]
    requests += [request("POST", f"{path}/{target.topic}/records", JSON, each) for each in bodies]
    outcome = _each(target, requests)
    delete_topics(target, topics_made(target))
    return outcome


@attack("http", within_s=30, ci=True)
def packed_bodies(target: Target) -> str:
    """Bodies in gzip, deflate, brotli and zstd that unfold to gigabytes are refused, and not unpacked."""
    plain = b"[" + b" " * 200_000_000 + b"]"
    packer = zlib.compressobj(9, wbits=31)
    bomb = packer.compress(plain) + packer.flush()
    twice = gzip.compress(bomb)
    path = f"{_cluster(target)}/topics"
    requests = [
        request("POST", path, JSON + f"Content-Encoding: {coding}\r\n", body)
        for coding in ("gzip", "deflate", "br", "zstd", "gzip, gzip", "identity", "x")
        for body in (bomb, twice, zlib.compress(plain[:50_000_000]))
    ]
    requests += [request("POST", _records(target), JSON + "Content-Encoding: gzip\r\n", bomb)] * 5
    return _each(target, requests, 6)


@attack("http", within_s=40)
def bodies_by_the_byte(target: Target) -> str:
    """Two hundred bodies that arrive by the byte hold no place that others need."""
    start = request("POST", f"{_cluster(target)}/topics", JSON + "Content-Length: 1000\r\n")
    with target.lines(200, "http") as lines:
        for line in lines:
            line.send(start, within_s=0.1)
        for _ in range(12):
            for line in lines:
                line.send(b" ", within_s=0.01)
            time.sleep(0.5)
        return counted([statuses(line, 0.02, 1) for line in lines])


@attack("http", within_s=40)
def streams_of_records_without_end(target: Target) -> str:
    """Streams of records that never stop, on twenty connections, leave producers at the Kafka port their share."""
    start = request("POST", _records(target), CHUNKED)
    piece = b'{"value":{"type":"STRING","data":"' + b"v" * 1_000 + b'"}}'
    chunk = f"{len(piece):x}\r\n".encode() + piece + b"\r\n"
    going_on, sent = for_seconds(5), 0
    with target.lines(20, "http") as lines:
        for line in lines:
            line.send(start)
        while going_on():
            for line in lines:
                sent += line.send(chunk * 50, within_s=0.05)
                line.read(0.002)
        return f"{sent // 1024} KiB sent, {counted([each.state for each in lines])}"


@attack("http", within_s=40)
def records_that_never_end(target: Target) -> str:
    """One record of a stream that goes on for megabytes, or a stream of blanks, is cut off at the limit of a record."""
    start = request("POST", _records(target), CHUNKED)
    pieces = [b'{"value":{"type":"STRING","data":"', b" " * 60_000, b"[" * 60_000, b'{"a":', b'"\\']
    with target.lines(len(pieces) * 4, "http") as lines:
        for number, line in enumerate(lines):
            piece = pieces[number % len(pieces)]
            line.send(start + f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        more = b"10000\r\n" + b"v" * 65_536 + b"\r\n"
        for _ in range(60):
            for line in lines:
                line.send(more, within_s=0.05)
        return counted([statuses(line, 0.3, 2) for line in lines])


@attack("http", within_s=30)
def large_bodies_on_many_connections(target: Target) -> str:
    """Bodies of a megabyte, all but their last byte, on 250 connections stay within what bodies may take."""
    body = b"[" + b" " * ((1 << 20) - 10)
    data = request("POST", f"{_cluster(target)}/topics", JSON + f"Content-Length: {len(body) + 1}\r\n") + body
    with target.lines(250, "http") as lines:
        taken = sum(line.send(data, within_s=0.3) for line in lines)
        time.sleep(2)
        return f"{taken >> 20} MiB taken, {counted([statuses(line, 0.01, 1) for line in lines])}"


@attack("http", within_s=30)
def wrong_tokens_and_audits(target: Target) -> str:
    """Ten thousand refused changes fill neither a log nor a queue, and wrong tokens change no state."""
    path = f"{_cluster(target)}/topics/nowhere"
    data = b"".join(
        request("DELETE", path, f"Authorization: Bearer wrong-{number}\r\nX-Request-Id: {'i' * 64}\r\n")
        for number in range(100)
    )
    going_on, sent = for_seconds(4), 0
    with target.lines(8, "http") as lines:
        while going_on():
            for line in lines:
                sent += line.send(data, within_s=0.05) * 100 // len(data)
                line.read(0.005)
    return f"{sent} refused"
