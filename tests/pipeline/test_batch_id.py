"""Which query and run a batch is of, without Spark: frames stand for its local properties."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raftlog.pipeline.batch_id import QUERY_ID, RUN_ID, WrittenTwice, query_of, write_once
from raftlog.pipeline.options import OptionFaults


def frame(run: str | None, query: str | None = "q") -> Any:
    """Return a frame of a run of a query."""
    context = SimpleNamespace(getLocalProperty={QUERY_ID: query, RUN_ID: run}.get)
    return SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))


def test_a_second_write_of_a_batch_to_a_place_is_an_error_and_a_replay_is_none(tmp_path: Any):
    """A replay is of another run. Other places, batches and writes that failed are none of its business."""
    written: list[str] = []

    def write(run: str, batch: int, place: str) -> None:
        write_once(
            frame(run), batch, f"{tmp_path}/{place}", lambda: written.append(f"{run} {batch} {place}") or 1
        )

    write("first", 0, "a")
    write("first", 0, "b")
    with pytest.raises(WrittenTwice, match=r"batch 0 was written to .*/a already"):
        write("first", 0, "a")
    write("first", 1, "a")
    write("second", 1, "a")
    with pytest.raises(WrittenTwice, match="batch 1"):
        write("second", 1, "a")
    assert written == ["first 0 a", "first 0 b", "first 1 a", "second 1 a"]


def test_a_write_that_failed_may_be_tried_again(tmp_path: Any):
    """The note in the topic or table says whether it is there."""

    def fail() -> int:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        write_once(frame("run"), 0, str(tmp_path), fail)
    assert write_once(frame("run"), 0, str(tmp_path), lambda: 3) == 3


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (frame("run", None), "use foreachBatch"),
        (SimpleNamespace(sparkSession=SimpleNamespace()), "Spark Connect"),
    ],
)
def test_a_frame_without_a_query_says_why(batch: Any, said: str):
    """A frame outside of a stream, and one of Spark Connect, which has no context."""
    with pytest.raises(OptionFaults) as found:
        query_of(batch)
    assert said in str(found.value)


def test_a_name_of_a_write_is_part_of_ids():
    """It is refused unless Kafka's tools can type it."""
    pytest.importorskip("pyarrow")
    pytest.importorskip("confluent_kafka")
    pytest.importorskip("pyspark")
    from raftlog.pipeline.exactly_once import ExactlyOnce

    options = {"kafka.bootstrap.servers": "a:9092", "topic": "t"}
    ExactlyOnce(options, name="bad.rows-1")
    for name in ("a b", "a/b", "x" * 101):
        with pytest.raises(OptionFaults, match=r"^name: "):
            ExactlyOnce(options, name=name)
