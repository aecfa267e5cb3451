"""`raftlog produce`, with kcat -P's flags. Keys are hashed as the Java client does (murmur2)."""

from __future__ import annotations

import io
import os
import select
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import typer

from raftlog.base.errors import InvalidRecord, KafkaError, UnknownTopicOrPartition
from raftlog.cli import exits
from raftlog.cli.client_settings import PRODUCER_SETTINGS, choice, is_on, number
from raftlog.cli.cluster_command import verb
from raftlog.cli.effective_settings import setting_of
from raftlog.cli.end_signals import ended_by_signals
from raftlog.cli.exits import Failure
from raftlog.cli.http_api import SEE_HEALTH
from raftlog.cli.kcat import options
from raftlog.cli.kcat.format import read_delimiter
from raftlog.cli.kcat.parse import MAX_MESSAGE_BYTES, Header, Shape, messages, read_header
from raftlog.cli.refusals import not_authorized
from raftlog.cli.target import Target, code_of, words_of
from raftlog.client.errors import Refused, Unreachable
from raftlog.client.producer import ALL, Failed, Producer, size_of
from raftlog.protocol.apis import ApiKey
from raftlog.records.batch import new_record
from raftlog.records.compression import CODEC_NAMES

LINGER_MS: Final = 5
"""How long standard input may be silent before what was read is sent."""
ACKS: Final = {"0": 0, "1": 1, "-1": ALL, "all": ALL}
AUTO_CREATE: Final = "auto.create.topics.enable"
SHOWN: Final = 8
"""Partitions that the line about sent records names."""
NEEDS_KEYS: Final = (
    "a compacted topic accepts only records with a key: set one with -k, or split lines with -K"
)

produce = typer.Typer(add_completion=False, rich_markup_mode=None)


@verb(produce, "produce", known=PRODUCER_SETTINGS)
def send(
    target: Target,
    files: options.Files = None,
    *,
    topic: options.TopicName = "",
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
    if not topic:
        raise _no_topic(files or [])
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
    limit = number(target.settings, "message.max.bytes", MAX_MESSAGE_BYTES)
    headers = [read_header(each) for each in header or []]
    sender = Sender(target, (topic, partition), headers, acks=acks, codec=codec)
    sender.announces = not quiet
    sender.reports = not quiet and sys.stderr.isatty()
    whole = [] if lines else files or []
    try:
        if whole:
            sender.send_files(whole, shape.key)
        else:
            source = files[0] if lines and files else None
            if source is None and sender.reports and sys.stdin.isatty():
                print("reading records from this terminal, one per line; Ctrl-D ends", file=sys.stderr)
            with ended_by_signals(), _source(source, quiet, sender) as read:
                for count_read, each in enumerate(messages(read, shape.delimiter, limit), 1):
                    sender.send(*shape.key_and_value(each))
                    if tee:
                        sys.stdout.buffer.write(each)
                    if count_read == count:
                        break
    except KeyboardInterrupt:
        return sender.finish() or exits.INTERRUPTED
    except Failure:
        sender.finish()
        raise
    sys.stdout.flush()
    return sender.finish()


def _lacks_key(failed: Failed) -> bool:
    """Return whether a batch was refused because a compacted topic needs keys. Brokers may not say so in words."""
    is_of_schemas = "schema" in str(failed.error)  # of a topic with schema validation
    return (
        isinstance(failed.error, InvalidRecord)
        and not is_of_schemas
        and any(record.key is None for record in failed.records)
    )


def _no_topic(files: Sequence[Path]) -> Failure:
    """Return the error of a command without a topic, which may have named the topic where files are named."""
    meant = str(files[0]) if files and not files[0].exists() else "TOPIC"
    return Failure(f"name a topic: -t {meant} (see raftlog produce --help)", exits.USAGE)


def _check_names(acks: str, codec: str) -> None:
    if acks not in ACKS:
        raise Failure(f"--acks {acks}: must be 0, 1 or all", exits.USAGE)
    if codec and codec not in options.CODECS:
        raise Failure(f"-z {codec}: must be one of {', '.join(options.CODECS)}", exits.USAGE)


@contextmanager
def _source(path: Path | None, quiet: bool, sender: Sender) -> Iterator[Callable[[int], bytes]]:
    """Give what reads standard input, or a file with its progress shown."""
    if path is None:
        yield _standard_input(sender)
        return
    from raftlog.cli.demo.screen import Screen

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


def _standard_input(sender: Sender) -> Callable[[int], bytes]:
    """Return what reads as much as is there, as a pipe may be slow; what was read is sent before a longer wait."""
    standard = cast(io.BufferedReader, sys.stdin.buffer)
    try:
        descriptor = standard.fileno()
    except OSError:  # it is in memory
        return standard.read1
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)

    def read(size: int) -> bytes:
        if not poller.poll(sender.linger_ms):
            sender.flush()
        return standard.read1(size)

    return read


class Sender:
    """A producer of one topic, and what became of its records."""

    def __init__(
        self,
        target: Target,
        where: tuple[str, int],
        headers: Sequence[Header],
        *,
        acks: str,
        codec: str,
    ) -> None:
        """`where`: a topic, and a partition or -1 for any."""
        settings = target.settings
        self.reports = False
        """Whether `finish` prints how many records were sent, and where to."""
        self.announces = True
        """Whether a new topic is announced."""
        acks = choice(settings, "acks", ACKS, acks)
        codec = codec or choice(settings, "compression.type", CODEC_NAMES, "none")
        is_idempotent = is_on(settings, "enable.idempotence") and ACKS[acks] == ALL
        self.linger_ms = number(settings, "linger.ms", LINGER_MS)
        self._max_bytes = number(settings, "message.max.bytes", MAX_MESSAGE_BYTES)
        self._target, (self._topic, self._partition) = target, where
        self._headers = tuple(headers)
        self._ended = ""
        """The reason why the cluster accepts no more records."""
        self._open_producer = partial(
            Producer,
            target.cluster,
            self._topic,
            acks=ACKS[acks],
            codec=CODEC_NAMES[codec],
            idempotent=is_idempotent,
        )
        self._producer: Producer | None = None
        """None until the first record of a topic that does not exist: no input creates no topic."""
        self._has_records = False
        with self._refusals():
            found = target.cluster.metadata([self._topic]).topics[self._topic]
            self._is_new = found.error_code == UnknownTopicOrPartition.code
        if not self._is_new:
            self._open()
            return
        self._check_creation()
        if self._partition > 0:
            self._check_future_partition()

    def _check_creation(self) -> None:
        """Raise Failure if no broker creates topics, before input is read: it may be long, or take its time."""
        try:
            broker = self._target.describe_cluster().brokers[0]
            creates = setting_of(self._target, "broker", str(broker.broker_id), AUTO_CREATE)
        except (Failure, IndexError):  # as without DESCRIBE_CONFIGS: the first record shows it
            return
        if creates == "false":
            raise Failure(
                f"there is no topic {self._topic}, and the brokers create none ({AUTO_CREATE}=false); "
                f"raftlog topic create {self._topic} does",
                exits.NOT_FOUND,
            )

    def _check_future_partition(self) -> None:
        """Raise Failure if the topic would not have the partition, before a record creates it."""
        timeout_ms = int(self._target.timeout_s * 1000)

        def build(make: Any) -> Any:
            topic = make.CreatableTopic(
                name=self._topic, num_partitions=-1, replication_factor=-1, assignments=(), configs=()
            )
            return make.CreateTopicsRequest(topics=(topic,), timeout=timeout_ms, validate_only=True)

        (found,) = self._target.ask(ApiKey.CREATE_TOPICS, build).topics
        if found.num_partitions > 0:  # else the first record shows the reason
            self._check_partition(range(found.num_partitions))

    def _open(self) -> Producer:
        """Return the producer, after it created the topic if there was none. Raise Failure."""
        if self._producer is None:
            self._has_records = True
            with self._refusals():
                self._producer = self._open_producer()
            if self._is_new and self.announces:
                count = len(self._producer.partitions)
                many = "1 partition" if count == 1 else f"{count} partitions"
                print(f"topic {self._topic} is new, with {many}", file=sys.stderr)
            self._check_partition(self._producer.partitions)
        return self._producer

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except KafkaError as error:
            raise self._failure(error) from None
        except (Refused, Unreachable) as error:
            raise self._target.failure(error) from None

    def _check_partition(self, there: Collection[int]) -> None:
        if self._partition >= len(there):
            known = f"0 to {len(there) - 1}" if len(there) > 1 else "0 alone"
            raise Failure(
                f"topic {self._topic} has no partition {self._partition}; its partitions are {known}",
                exits.NOT_FOUND,
            )

    def send(self, key: bytes | None, value: bytes | None) -> None:
        """Hand a record to the producer, which may have to send others first. Raise Failure if it takes none."""
        record = new_record(key, value, timestamp=round(time.time() * 1000), headers=self._headers)
        if size_of(record) > self._max_bytes:
            size = len(value or b"") + len(key or b"")
            raise Failure(
                f"topic {self._topic}: a record of {size} bytes was not sent: it is over message.max.bytes "
                f"({self._max_bytes})"
            )
        producer = self._open()
        with self._ends():
            producer.send(record, self._partition)

    def flush(self) -> None:
        """Send what was read, until it is acknowledged or refused. Raise Failure."""
        if self._producer is not None:
            with self._ends():
                self._producer.flush()

    @contextmanager
    def _ends(self) -> Iterator[None]:
        try:
            yield
        except KafkaError as error:
            raise self._failure(error) from None
        except Refused as error:
            self._ended = str(error)
            raise self._target.failure(error) from None
        except Unreachable as error:
            self._ended = f"{error}; {SEE_HEALTH}"
            raise Failure(
                f"topic {self._topic}: the cluster accepts no more records: {error}; {SEE_HEALTH}",
                exits.UNREACHABLE,
            ) from None

    def send_files(self, paths: Sequence[Path], key: bytes | None) -> None:
        """Send each file as a record, except empty files. Raise Failure at the first unreadable file."""
        for path in paths:
            try:
                content = path.read_bytes()
            except OSError as error:
                raise Failure(f"{path}: {error.strerror}", exits.NOT_FOUND) from None
            if content:
                self.send(key, content)

    def finish(self) -> int:
        """Send the rest, unless the cluster accepts no more records; report lost records and return the exit code."""
        if self._producer is None:
            if self.announces and not self._has_records:
                print(f"topic {self._topic} does not exist, and no record came to create it", file=sys.stderr)
            return 0
        if not self._ended:
            try:
                self.flush()
            except Failure as ended:
                self._ended = self._ended or str(ended)
        self._producer.close()
        failures = self._producer.failures
        lost = sum(len(each.records) for each in failures) + self._producer.unsent
        if self.reports:
            print(sent_line(self._topic, self._producer.acknowledged), file=sys.stderr)
        if not lost:
            return 0
        about = f"{lost} {'record' if lost == 1 else 'records'} not acknowledged: "
        failure = Failure(f"topic {self._topic}: {about}{self._ended}", exits.UNREACHABLE)
        if failures:
            failure = self._failure(failures[0].error, about)
        if any(map(_lacks_key, failures)):
            failure = Failure(f"{failure}; {NEEDS_KEYS}", failure.code)
        print(f"raftlog: {failure}", file=sys.stderr)
        return failure.code

    def _failure(self, error: KafkaError, about: str = "") -> Failure:
        """Return the end of this command over an error, which names the topic and the missing right."""
        lacks_right = not_authorized(type(error).__name__) is not None
        words = not_authorized("TopicAuthorizationFailed", "WRITE") if lacks_right else words_of(error)
        return Failure(f"topic {self._topic}: {about}{words}", code_of(error))


def sent_line(topic: str, counts: Mapping[int, int]) -> str:
    """Return how many records were sent, and to which partitions, for the terminal."""
    total = sum(counts.values())
    parts = ", ".join(f"{count} to partition {number}" for number, count in sorted(counts.items())[:SHOWN])
    more = f", and to {len(counts) - SHOWN} more partitions" if len(counts) > SHOWN else ""
    return f"topic {topic}: {total} {'record' if total == 1 else 'records'} sent{parts and ': '}{parts}{more}"
