"""`raftlog produce`, with kcat -P's flags, on librdkafka. Keys are hashed as the Java client does (murmur2)."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import typer

from raftlog.cli import exits
from raftlog.cli import kcat_options as options
from raftlog.cli.cluster_command import verb
from raftlog.cli.end_signals import ended_by_signals
from raftlog.cli.exits import Failure
from raftlog.cli.kcat_format import read_delimiter
from raftlog.cli.kcat_parse import MAX_MESSAGE_BYTES, Header, Shape, messages, read_header
from raftlog.cli.librdkafka import client_settings, confluent_kafka, exit_of, list_topics, words_of
from raftlog.cli.refusals import not_authorized
from raftlog.cli.target import Target

POLL_S: Final = 0.2
TOPIC_DENIED: Final = "TOPIC_AUTHORIZATION_FAILED"
"""Every refusal to a producer comes of this: a producer id needs the right to write to some topic."""
INVALID: Final = "INVALID_RECORD"
NEEDS_KEYS: Final = "a compacted topic takes only records with a key: set one with -k, or split lines with -K"
"""Brokers say which record is wrong, and why; librdkafka keeps that to itself."""

produce = typer.Typer(add_completion=False, rich_markup_mode=None)


@verb(produce, "produce")
def send(
    target: Target,
    files: options.Files = None,
    *,
    topic: options.TopicName,
    partition: options.ToPartition = -1,
    key_delimiter: options.SplitAt = None,
    key: options.Key = None,
    delimiter: options.Delimiter = "\\n",
    header: options.Headers = None,
    codec: options.Codec = "",
    lines: options.Lines = False,
    count: options.SendCount = 0,
    tee: options.Tee = False,
    nulls: options.SendNulls = False,
    acks: options.Acks = "all",
    quiet: options.Quiet = False,
) -> int:
    """Send standard input, one record per line; or files.

    \b
    printf 'a:first\\nb:second\\n' | raftlog produce -t orders -K :
    raftlog produce -t orders -l lines.txt       each line of a file
    raftlog produce -t pictures -k cat cat.jpg   each file as a whole
    """
    _check_names(acks, codec)
    if lines and len(files or []) != 1:
        raise Failure("-l takes exactly one FILE", exits.USAGE)
    shape = Shape(
        read_delimiter(delimiter),
        None if key_delimiter is None else read_delimiter(key_delimiter),
        None if key is None else os.fsencode(key),
        nulls,
    )
    if not shape.delimiter:
        raise Failure("-D must not be empty", exits.USAGE)
    sender = Sender(
        target, topic, partition, [read_header(each) for each in header or []], acks=acks, codec=codec
    )
    whole = [] if lines else files or []
    limit = int(client_settings(target.settings).get("message.max.bytes", MAX_MESSAGE_BYTES))
    try:
        if whole:
            sender.send_files(whole, shape.key)
        else:
            with ended_by_signals(), _source(files[0] if lines and files else None, quiet) as read:
                for number, each in enumerate(messages(read, shape.delimiter, limit), 1):
                    sender.send(*shape.key_and_value(each))
                    if tee:
                        sys.stdout.buffer.write(each)
                    if number == count:
                        break
    except KeyboardInterrupt:
        return sender.finish() or exits.INTERRUPTED
    except Failure:
        sender.finish()
        raise
    sys.stdout.flush()
    return sender.finish()


def _check_names(acks: str, codec: str) -> None:
    if acks not in ("0", "1", "-1", "all"):
        raise Failure(f"--acks {acks}: 0, 1 or all", exits.USAGE)
    if codec and codec not in options.CODECS:
        raise Failure(f"-z {codec}: one of {', '.join(options.CODECS)}", exits.USAGE)


@contextmanager
def _source(path: Path | None, quiet: bool) -> Iterator[Callable[[int], bytes]]:
    """Give what reads standard input, or a file with its progress shown."""
    if path is None:
        yield cast(io.BufferedReader, sys.stdin.buffer).read1  # as much as is there: a pipe may be slow
        return
    from raftlog.cli.demo_screen import Screen

    try:
        file: BinaryIO = path.open("rb")
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}", exits.NOT_FOUND) from None
    with file, Screen(quiet=quiet) as screen:
        screen.phase("KB read", max(1, os.fstat(file.fileno()).st_size // 1000))

        def read(size: int) -> bytes:
            screen.progress(file.tell() // 1000)
            return file.read(size)

        yield read


class Sender:
    """A producer, and what became of its records."""

    def __init__(
        self,
        target: Target,
        topic: str,
        partition: int,
        headers: Sequence[Header],
        *,
        acks: str,
        codec: str,
    ) -> None:
        self._topic, self._partition, self._headers = topic, partition, list(headers) or None
        self._failures: list[Any] = []
        self._lacks_key = False
        """Whether a record without a key was refused, as compacted topics do."""
        self._heard_at = 0.0
        self._timeout_s = target.timeout_s
        defaults: dict[str, object] = {
            "acks": acks,
            "enable.idempotence": acks in ("all", "-1"),
            "partitioner": "murmur2_random",
            **({"compression.type": codec} if codec else {}),
        }
        self._producer, self._troubles = target.client("Producer", defaults)
        self._library = confluent_kafka()
        self._check_topic()

    def _check_topic(self) -> None:
        """Fail at once where librdkafka would wait for a partition to appear. Also creates the topic, as clients do."""
        found = list_topics(self._producer, self._troubles, self._timeout_s, self._topic).topics[self._topic]
        if found.error is not None and not_authorized(found.error.name()):
            raise self._failure(found.error)
        last = len(found.partitions) - 1
        if found.partitions and self._partition > last:
            known = f"0 to {last}" if last else "0 alone"
            raise Failure(
                f"topic {self._topic} has no partition {self._partition}, but {known}", exits.NOT_FOUND
            )

    def send(self, key: bytes | None, value: bytes | None) -> None:
        """Hand a record to librdkafka; waits while its queue is full. Raises Failure when it takes none like this."""
        since = time.monotonic()
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value,
                    key,
                    self._partition,
                    on_delivery=self._delivered,
                    headers=self._headers,
                )
                self._producer.poll(0)
                break
            except BufferError:
                self._producer.poll(POLL_S)
                if self._is_silent(since):
                    raise Failure("the cluster takes nothing more", exits.UNREACHABLE) from None
            except self._library.KafkaException as error:
                size = len(value or b"") + len(key or b"")
                raise self._failure(error.args[0], f"a record of {size} bytes was not sent: ") from None

    def _failure(self, error: Any, about: str = "") -> Failure:
        """Return the end of this command over an error, which names the topic and the right that lacks."""
        lacks_right = not_authorized(error.name()) is not None
        words = not_authorized(TOPIC_DENIED, "WRITE") if lacks_right else words_of(error)
        return Failure(f"topic {self._topic}: {about}{words}", exit_of(error))

    def send_files(self, paths: Sequence[Path], key: bytes | None) -> None:
        """Send each file as a record, except empty files. Raise Failure at the first unreadable file."""
        for path in paths:
            try:
                content = path.read_bytes()
            except OSError as error:
                raise Failure(f"{path}: {error.strerror}", exits.NOT_FOUND) from None
            if content:
                self.send(key, content)

    def _delivered(self, error: Any, message: Any) -> None:
        self._heard_at = time.monotonic()
        if error is not None:
            self._failures.append(error)
            self._lacks_key |= error.name() == INVALID and message.key() is None

    def _is_silent(self, since: float) -> bool:
        """Whether nothing was acknowledged for the timeout: a queue that only moves slowly may take its time."""
        return time.monotonic() - max(since, self._heard_at) > self._timeout_s

    def finish(self) -> int:
        """Wait until all is acknowledged, or no more is; report the rest and return the exit code."""
        began = time.monotonic()
        try:
            while (unsent := self._producer.flush(POLL_S)) and not self._is_silent(began):
                continue
        except self._library.KafkaException as error:  # an error that no later record avoids
            raise self._failure(error.args[0]) from None
        lost = len(self._failures) + unsent
        if not lost:
            return 0
        about = f"{lost} {'record' if lost == 1 else 'records'} not acknowledged: "
        failure = Failure(
            f"topic {self._topic}: {about}no answer for {self._timeout_s:g} s", exits.UNREACHABLE
        )
        if self._failures:
            failure = self._failure(self._failures[0], about)
        if self._lacks_key:
            failure = Failure(f"{failure}; {NEEDS_KEYS}", failure.code)
        print(f"raftlog: {failure}", file=sys.stderr)
        return failure.code
