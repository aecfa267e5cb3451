"""Claims about the log."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextvars import copy_context

import pytest
import structlog
import structlog.testing

from raftlog.base.log import (
    LIMITED_EVERY_S,
    LIMITED_LINES,
    LOGGERS,
    LimitedLog,
    configure_log,
    get_logger,
    separate_log,
)
from tests.kit.clock import Clock


@pytest.fixture(autouse=True)
def _fresh_structlog() -> Iterator[None]:
    yield
    structlog.reset_defaults()
    LOGGERS.start("INFO")


def test_a_pipe_gets_one_json_object_per_event_with_the_node_bound():
    """Machines read the log of a service."""
    stream = io.StringIO()
    configure_log(node_id=7, stream=stream)
    get_logger("replication", topic="t").info("isr_shrunk", partition=3, isr=(1, 2))
    event = json.loads(stream.getvalue())
    assert event.pop("timestamp").endswith("Z")
    assert event == {
        "event": "isr_shrunk", "level": "info", "node_id": 7, "room": "replication",
        "topic": "t", "partition": 3, "isr": [1, 2],
    }  # fmt: skip


def test_a_separate_log_has_the_events_of_its_context_alone():
    """Loggers that were bound or used before belong to it as well; code outside the context logs as before."""
    stream, separate = io.StringIO(), io.StringIO()
    configure_log(stream=stream)
    log = get_logger("replication")
    bound = log.bind(topic="t")
    log.info("outside")
    with separate_log(separate):
        log.info("used_before")
        bound.warning("bound_before", partition=3, method="GET")
        copy_context().run(log.info, "in_a_task")
    log.info("outside_again")
    events = [json.loads(line) for line in separate.getvalue().splitlines()]
    assert [each["event"] for each in events] == ["used_before", "bound_before", "in_a_task"]
    assert (events[1]["room"], events[1]["topic"], events[1]["partition"]) == ("replication", "t", 3)
    assert events[1]["method"] == "GET"
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == [
        "outside",
        "outside_again",
    ]


def test_a_module_is_a_room_without_the_packages_name():
    """Every event of a raftlog node is raftlog's."""
    stream = io.StringIO()
    configure_log(stream=stream)
    get_logger("raftlog.broker.replicas.log_directories").info("logs_recovered")
    assert json.loads(stream.getvalue())["room"] == "broker.replicas.log_directories"


def test_events_below_the_level_are_not_written():
    """debug lines appear only on request."""
    stream = io.StringIO()
    configure_log(level="warning", stream=stream)
    get_logger().info("nothing_happened")
    assert stream.getvalue() == ""


def test_a_terminal_gets_lines_for_people():
    """Console rendering when the stream is a terminal, or when asked for."""
    stream = io.StringIO()
    configure_log(format="console", stream=stream)
    get_logger().info("node_started", port=9092)
    assert "node_started" in stream.getvalue() and not stream.getvalue().startswith("{")


def test_an_exception_leaves_its_traceback_in_the_event():
    """An unexpected error in a handler is logged whole."""
    stream = io.StringIO()
    configure_log(stream=stream)
    try:
        raise RuntimeError("boom")
    except RuntimeError:
        get_logger().exception("request_failed", odd=object)
    event = json.loads(stream.getvalue())
    assert "RuntimeError: boom" in event["exception"]
    assert event["level"] == "error"


def test_a_flood_of_one_event_is_a_few_lines_and_a_count():
    """A client must not fill the disk of a node with lines about itself; other events are written all the same."""
    clock = Clock()
    with structlog.testing.capture_logs() as lines:
        limited = LimitedLog(get_logger(), clock)
        for _ in range(1_000):
            limited.warning("connection_refused", limit="max.connections")
        limited.warning("framing_lost")
        assert [each["event"] for each in lines] == ["connection_refused"] * LIMITED_LINES + ["framing_lost"]
        clock.advance(LIMITED_EVERY_S)
        limited.warning("connection_refused")
    assert lines[-1]["left_out"] == 1_000 - LIMITED_LINES


def test_the_end_of_a_flood_is_logged_too():
    """A flush says what no further line of that event will say, once."""
    clock = Clock()
    with structlog.testing.capture_logs() as lines:
        limited = LimitedLog(get_logger(), clock)
        for _ in range(10):
            limited.warning("request_malformed")
        limited.flush()
        clock.advance(LIMITED_EVERY_S)
        limited.flush()
        limited.flush()
    assert lines[LIMITED_LINES:] == [
        {
            "event": "log_lines_suppressed",
            "log_level": "warning",
            "suppressed_event": "request_malformed",
            "left_out": 5,
        }
    ]


def test_failures_of_different_work_are_distinguished():
    """The traceback of a second bug is not left out because of a flood of the first."""
    with structlog.testing.capture_logs() as lines:
        limited = LimitedLog(get_logger(), Clock())
        for what in ["fetch"] * 10 + ["produce"]:
            limited.exception("request_crashed", what=what)
    assert [each["what"] for each in lines] == ["fetch"] * LIMITED_LINES + ["produce"]


def written(stream: io.StringIO) -> list[str]:
    return [json.loads(line)["event"] for line in stream.getvalue().splitlines()]


def test_a_room_that_is_made_louder_or_quieter_is_so_at_once():
    """Loggers in use follow at once, and the loggers of other rooms do not (KIP-412)."""
    stream = io.StringIO()
    configure_log(level="info", stream=stream)
    fetcher, quorum = get_logger("raftlog.broker.replicas.fetcher"), get_logger("quorum")
    for each in (fetcher, quorum):
        each.debug("before")
    LOGGERS.change("raftlog.broker", "DEBUG")
    LOGGERS.change("raftlog.quorum", "ERROR")
    fetcher.debug("louder")
    quorum.debug("other_room")
    quorum.warning("quieter")
    quorum.error("still_heard")
    LOGGERS.change("raftlog.broker", None)
    fetcher.debug("as_before")
    assert written(stream) == ["louder", "still_heard"]


def test_the_audit_log_has_the_level_of_the_config_whatever_is_changed():
    """It records every change and its user; no client may silence it."""
    stream = io.StringIO()
    configure_log(level="info", stream=stream)
    LOGGERS.change("raftlog", "FATAL")
    get_logger("audit").info("admin_change")
    get_logger("node").error("unheard")
    assert written(stream) == ["admin_change"]
    assert "raftlog.audit" not in LOGGERS.levels()
