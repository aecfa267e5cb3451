"""Exactly once to a topic: kills between every two steps, replayed batches, and attempts that are late."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.conftest import ROOT
from tests.pipeline.processes import crash, finished, given, started, wait_for
from tests.pipeline.test_jobs import SHAPE, forget_last_batch, trip
from tests.pipeline.test_standalone import master  # noqa: F401 - a fixture
from tests.pipeline.topics import Topics

pytestmark = pytest.mark.spark


def written(topics: Topics, topic: str) -> list[bytes]:
    """Return the values of committed records."""
    return [row.value or b"" for row in topics.read(topic)]


class Attempts:
    """A process that makes attempts to write a batch, and is asked for each by a line."""

    def __init__(self, topics: Topics, topic: str) -> None:
        command = [sys.executable, "-m", "tests.pipeline.killed_batch", topics.servers, topic]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Attempts:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def write(self, query: str, batch: int, values: list[str], die_after: int = 0) -> int:
        """Return the exit code of an attempt."""
        assert self._process.stdin is not None and self._process.stdout is not None
        asked = {"query": query, "batch": batch, "values": values, "die_after": die_after}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


def test_a_batch_is_in_the_topic_once_whatever_it_is_killed_after(java: None, topics: Topics, topic: str):
    """An attempt is killed after each call of its clients in turn. Then come the replay and the next batch."""
    topics.make(topic)
    expected, last = [], 0
    with Attempts(topics, topic) as attempts:
        for last in range(1, 30):
            query, values = f"{topic}-{last}", [f"{last}-{row}" for row in range(2)]
            killed = attempts.write(query, 0, values, die_after=last)
            assert attempts.write(query, 0, values) == 0
            assert attempts.write(query, 1, [f"{last}-next"]) == 0
            expected += [*values, f"{last}-next"]
            if killed == 0:
                break
            assert killed == -signal.SIGKILL
    assert last > 8, "the calls are not counted"
    assert written(topics, topic) == [each.encode() for each in expected]


@pytest.fixture
def query() -> str:
    return str(uuid.uuid4())


def attempt(topics: Topics, topic: str, query: str, batch: int, values: Any, first_batch: int = 0) -> int:
    """Write a batch in this process; return how many rows were written."""
    import pyarrow as pa

    from raftlog.pipeline.exactly_once import write_batch
    from raftlog.pipeline.options import write_options

    def rows() -> Iterator[Any]:
        for value in values:
            yield pa.RecordBatch.from_pydict({"value": [value]})

    options = write_options({"kafka.bootstrap.servers": topics.servers, "topic": topic})
    (found,) = write_batch(options, frozenset({"value"}), query, batch, first_batch, rows())
    return int(found.to_pylist()[0]["rows"])


def test_an_attempt_that_its_successor_fenced_writes_nothing(
    java: None, topics: Topics, topic: str, query: str
):
    """A hung task of a job that was started again elsewhere: its rows are in an aborted transaction."""
    from raftlog.pipeline.sink import NotWritten

    topics.make(topic)

    def values() -> Iterator[bytes]:
        yield b"old 1"
        assert attempt(topics, topic, query, 0, [b"new 1", b"new 2"]) == 2
        yield b"old 2"

    with pytest.raises(NotWritten):
        attempt(topics, topic, query, 0, values())
    assert attempt(topics, topic, query, 0, [b"replayed"]) == 0
    assert written(topics, topic) == [b"new 1", b"new 2"]


def test_a_fatal_error_that_the_client_loses_is_no_other_error(
    monkeypatch: pytest.MonkeyPatch, topics: Topics, topic: str, query: str
):
    """Confluent's client raises a SystemError without a cause where a delivery report follows the fatal error."""
    from raftlog.pipeline import exactly_once, sink

    def lose(writing: sink.Writing) -> None:
        raise SystemError("flush returned NULL without setting an exception")

    topics.make(topic)
    monkeypatch.setattr(exactly_once.Writing, "finish", lose)
    with pytest.raises(sink.NotWritten, match=r"batch 0 of transactional id .*: flush returned NULL"):
        attempt(topics, topic, query, 0, [b"1"])
    monkeypatch.undo()
    assert attempt(topics, topic, query, 0, [b"replayed"]) == 1
    assert written(topics, topic) == [b"replayed"]


def test_a_batch_that_fails_leaves_no_open_transaction(java: None, topics: Topics, topic: str, query: str):
    """Readers of the topic do not wait for its timeout."""
    topics.make(topic)

    def values() -> Iterator[bytes]:
        yield b"1"
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        attempt(topics, topic, query, 0, values())
    topics.fill(topic, [b"of another producer"])
    assert written(topics, topic) == [b"of another producer"]


def test_a_batch_that_the_note_does_not_fit_is_refused(java: None, topics: Topics, topic: str, query: str):
    """An expired note, and a copy of a checkpoint that went on elsewhere. Both could lose or repeat rows."""
    from raftlog.pipeline.exactly_once import UnknownBatch

    topics.make(topic)
    with pytest.raises(UnknownBatch, match="no batch is noted, and this is batch 3"):
        attempt(topics, topic, query, 3, [b"x"])
    assert attempt(topics, topic, query, 3, [b"3"], first_batch=3) == 1
    assert attempt(topics, topic, query, 4, []) == 0
    assert attempt(topics, topic, query, 5, [b"5"]) == 1
    for batch in (3, 4, 7):
        with pytest.raises(UnknownBatch, match="the next batch is noted to be 6"):
            attempt(topics, topic, query, batch, [b"x"])
    assert written(topics, topic) == [b"3", b"5"]


@pytest.mark.taste
def test_a_replayed_batch_of_a_query_writes_nothing_twice(
    spark: Any, topics: Topics, topic: str, tmp_path: Path
):
    """Spark forgets that the last batch was done, as after a crash, and plans it again with other tasks.

    Each batch is written twice, by two names. A third write looks like a replay, and is an error.
    """
    from raftlog.pipeline.batch_id import WrittenTwice
    from raftlog.pipeline.exactly_once import ExactlyOnce

    target = f"{topic}-copy"
    topics.make(topic, 2)
    topics.make(target)
    servers = {"kafka.bootstrap.servers": topics.servers}

    def copy(tasks: int) -> None:
        limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "10", "minPartitions": str(tasks)}
        rows = spark.readStream.format("raftlog").options(subscribe=topic, **limits, **servers).load()
        once = ExactlyOnce({"topic": target, **servers})
        again = ExactlyOnce({"topic": target, **servers}, name="again")

        def write(frame: Any, batch: int) -> None:
            once(frame, batch)
            again(frame.selectExpr("concat('again ', string(value)) AS value"), batch)
            with pytest.raises(WrittenTwice, match=f"batch {batch} was written to topic {target}"):
                once(frame, batch)

        writer = rows.select("key", "value").writeStream.foreachBatch(write)
        place = str(tmp_path / "query")
        writer.option("checkpointLocation", place).trigger(availableNow=True).start().awaitTermination()

    for number in range(2):
        topics.fill(topic, [b"%d-%d" % (number, row) for row in range(12)], partition=number)
    copy(2)
    forget_last_batch(tmp_path)
    copy(5)
    topics.fill(topic, [b"later"])
    copy(1)
    sent = [b"%d-%d" % (number, row) for number in range(2) for row in range(12)] + [b"later"]
    assert sorted(written(topics, target)) == sorted([*sent, *(b"again " + each for each in sent)])


def test_windows_and_dead_letters_of_replayed_batches_are_in_their_topics_once(
    spark: Any, topics: Topics, topic: str, tmp_path: Path
):
    """The job's option `exactly_once`, of both its queries; a switch to it needs a new checkpoint."""
    from raftlog.pipeline.jobs.aggregate import AggregateOptions, aggregate
    from raftlog.pipeline.jobs.control import JobError
    from raftlog.pipeline.jobs.settings import build

    for name in (topic, f"{topic}-windows", f"{topic}-dead"):
        topics.make(name)
    places = {"to_topic": f"{topic}-windows", "dead_letter": f"{topic}-dead", "exactly_once": True}
    asked = given(topics, topic, tmp_path, **places, **SHAPE)
    topics.fill(topic, [trip("00:10:00"), b"nope", trip("09:00:00")])
    first = aggregate(spark, build(AggregateOptions, asked))
    assert (first.windows, first.malformed) == (1, 1)
    forget_last_batch(tmp_path / "checkpoint")
    forget_last_batch(tmp_path / "checkpoint", "dead-letters")
    aggregate(spark, build(AggregateOptions, asked))
    assert len(written(topics, f"{topic}-windows")) == 1
    assert written(topics, f"{topic}-dead") == [b"nope"]
    with pytest.raises(JobError, match="exactly_once was None and is now 'true'"):
        other = {**asked, "checkpoint": str(tmp_path / "other")}
        aggregate(spark, build(AggregateOptions, {**other, "exactly_once": False}))
        aggregate(spark, build(AggregateOptions, other))


def test_a_killed_job_on_a_standalone_master_writes_each_window_once(
    master: str,  # noqa: F811
    topics: Topics,
    topic: str,
    tmp_path: Path,
):
    """Two workers. The driver is killed with all that it started, amid the batches, and started again."""
    topics.make(topic)
    topics.make(f"{topic}-windows")
    hours = 12
    topics.fill(
        topic, [trip(f"{n // 10:02}:{n % 10}0:00", fare=float(n)) for n in range(10 * hours) if n % 10 < 6]
    )
    options = given(
        topics, topic, tmp_path, master=master, max_records=12, to_topic=f"{topic}-windows", **SHAPE
    )
    options["conf"] = ["spark.executor.memory=512m", "spark.executor.cores=1"]
    process = started("aggregate", options, "--exactly-once")
    wait_for(lambda: len(written(topics, f"{topic}-windows")) >= 2, process)
    crash(process)
    assert len(written(topics, f"{topic}-windows")) < hours - 2
    finished(started("aggregate", options, "--exactly-once"))
    rows = [json.loads(value) for value in written(topics, f"{topic}-windows")]
    found = [(row["window_start"][11:13], row["records"]) for row in rows]
    assert sorted(found) == [(f"{hour:02}", 6) for hour in range(hours - 2)]
