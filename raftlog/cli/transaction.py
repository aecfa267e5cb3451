"""`raftlog transaction …`: what kafka-transactions does, over HTTP: ending a transaction is for operators only."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from typing import Annotated, Any, Final
from urllib.parse import quote, urlencode

import typer

from raftlog.cli import exits
from raftlog.cli.cluster_command import not_empty, noun
from raftlog.cli.exits import Failure
from raftlog.cli.http_api import HttpApi
from raftlog.cli.http_command import http_verb
from raftlog.cli.rows import Form, in_time, print_object, print_rows

transaction = noun("List and describe transactions; find and end hanging transactions.")

MINUTE_MS: Final = 60_000
LISTED: Final = ("transactional_id", "coordinator", "producer_id", "state", "age", "timeout")
HANGING: Final = ("topic", "partition", "start_offset", "producer_id", "producer_epoch", "last_ms")

Topic = Annotated[str, typer.Option("--topic", "-t", metavar="TOPIC")]
Partition = Annotated[int, typer.Option("--partition", "-p", min=0, max=2**31 - 1)]
StartOffset = Annotated[int, typer.Option("--start-offset", min=0, help="as shown by find-hanging")]


@http_verb(transaction, "list", prints_rows=True)
def list_transactions(api: HttpApi, *, form: Form) -> None:
    """List all transactional ids with their states and coordinators, and how long ago an open transaction began."""
    rows = api.ask("GET", "/v1/transactions")["data"]
    if form is Form.TABLE:
        rows = [{**each, **_times(each)} for each in rows]
    print_rows(rows, form, LISTED)


def _times(found: dict[str, Any]) -> dict[str, str | None]:
    """Return the age and the timeout of an open transaction for people."""
    if found["start_ms"] < 0:
        return {"age": None, "timeout": None}
    return {"age": _age(found["start_ms"]), "timeout": in_time(found["timeout_ms"])}


def _age(since_ms: int) -> str:
    return in_time(max(0, round(time.time() * 1000) - since_ms))


@http_verb(transaction, "describe", prints_rows=True)
def describe(
    api: HttpApi, name: Annotated[str, typer.Argument(metavar="ID", callback=not_empty)], *, form: Form
) -> None:
    """Show a transactional id, and what its transaction wrote to."""
    found = api.ask("GET", f"/v1/transactions/{quote(name, safe='')}")
    found["partitions"] = [f"{each['topic_name']}-{each['partition_id']}" for each in found["partitions"]]
    if form is Form.TABLE:
        start_ms, timeout_ms = found.pop("start_ms"), found.pop("timeout_ms")
        started = datetime.fromtimestamp(start_ms / 1000, UTC).isoformat(timespec="seconds")
        found["timeout"] = in_time(timeout_ms)
        found["start"] = f"{started} ({_age(start_ms)} ago)" if start_ms >= 0 else None
    print_object(found, form)


@http_verb(transaction, "find-hanging", prints_rows=True)
def find_hanging(
    api: HttpApi,
    *,
    topic: Topic = "",
    max_timeout: Annotated[
        int | None,
        typer.Option(
            "--max-transaction-timeout",
            metavar="MIN",
            min=0,
            help="unused for so long; default: the broker's transaction.max.timeout.ms, 15 minutes unless set",
        ),
    ] = None,
    form: Form,
) -> None:
    """Find hanging transactions: open in a partition, but unknown to all coordinators, so that they never end.

    Only transactions without a write for as long as any transaction may take (--max-transaction-timeout).
    """
    wanted: dict[str, Any] = {"topic": topic} if topic else {}
    if max_timeout is not None:
        wanted["unused_ms"] = max_timeout * MINUTE_MS
    rows = api.ask("GET", f"/v1/hanging-transactions?{urlencode(wanted)}")["data"]
    print_rows([_row(each) for each in rows], form, HANGING)
    if not rows:
        limit = "the broker's transaction.max.timeout.ms (15 minutes unless set)"
        limit = limit if max_timeout is None else f"{max_timeout} minutes"
        print(f"raftlog: none hangs that was not written to for {limit}", file=sys.stderr)


@http_verb(transaction, "abort")
def abort(api: HttpApi, *, topic: Topic, partition: Partition, start_offset: StartOffset) -> None:
    """End a hanging transaction, by an operator's decision. A transaction that its coordinator knows is refused."""
    path = f"/v1/topics/{quote(topic, safe='')}/partitions/{partition}/abort"
    try:
        found = api.ask("POST", path, {"start_offset": start_offset})
    except Failure as failure:
        if failure.code != exits.EXISTS:
            raise
        sooner = "its producer can end it sooner, or Admin.forceTerminateTransaction can fence it"
        raise Failure(f"{failure}; {sooner}, InitProducerId", exits.FAILED) from None
    print(
        f"aborted: producer {found['producer_id']} of epoch {found['producer_epoch']} in {topic}-{partition}"
    )


def _row(found: dict[str, Any]) -> dict[str, Any]:
    return {"topic": found.pop("topic_name"), "partition": found.pop("partition_id"), **found}
