"""`raftlog transactions …`: what kafka-transactions does, over HTTP: ending a transaction is for operators only."""

from __future__ import annotations

from typing import Annotated, Any, Final
from urllib.parse import quote, urlencode

import typer

from raftlog.cli.http_api import LOCAL, HttpApi
from raftlog.cli.rows import Form, print_object, print_rows
from raftlog.cli.target import TIMEOUT_S
from raftlog.cli.verb import noun

transactions = noun("List and describe transactions; find and end those that hang.")

MINUTE_MS: Final = 60_000
COLUMNS: Final = ("topic", "partition", "start_offset", "producer_id", "producer_epoch", "last_ms")

Url = Annotated[str, typer.Option("--http", metavar="URL", envvar="RAFTLOG_HTTP", help="any node's HTTP API")]
Token = Annotated[str, typer.Option("--token", envvar="RAFTLOG_TOKEN", help="where tokens are asked for")]
Timeout = Annotated[float, typer.Option("--timeout", "-m", metavar="S", min=0.1, max=3600)]
Output = Annotated[Form, typer.Option("--output", "-o", help="how to print")]
Topic = Annotated[str, typer.Option("--topic", "-t", metavar="TOPIC")]
Partition = Annotated[int, typer.Option("--partition", "-p", min=0, max=2**31 - 1)]
StartOffset = Annotated[int, typer.Option("--start-offset", min=0, help="as find-hanging tells it")]


@transactions.command("list")
def list_transactions(
    *, url: Url = LOCAL, token: Token = "", timeout: Timeout = TIMEOUT_S, output: Output = Form.TABLE
) -> None:
    """List all transactional ids with their states and coordinators."""
    rows = HttpApi(url, token, timeout).ask("GET", "/v1/transactions")["data"]
    print_rows(rows, output, ("transactional_id", "coordinator", "producer_id", "state"))


@transactions.command("describe")
def describe(
    name: Annotated[str, typer.Argument(metavar="ID")],
    *,
    url: Url = LOCAL,
    token: Token = "",
    timeout: Timeout = TIMEOUT_S,
    output: Output = Form.TABLE,
) -> None:
    """Show a transactional id, and what its transaction wrote to."""
    found = HttpApi(url, token, timeout).ask("GET", f"/v1/transactions/{quote(name, safe='')}")
    places = [f"{each['topic_name']}-{each['partition_id']}" for each in found["partitions"]]
    print_object({**found, "partitions": places}, output)


@transactions.command("find-hanging")
def find_hanging(
    *,
    topic: Topic = "",
    max_timeout: Annotated[
        int | None,
        typer.Option(
            "--max-transaction-timeout",
            metavar="MIN",
            min=0,
            help="unused for so long; default: the broker's",
        ),
    ] = None,
    url: Url = LOCAL,
    token: Token = "",
    timeout: Timeout = TIMEOUT_S,
    output: Output = Form.TABLE,
) -> None:
    """Find transactions that are open in a partition while no coordinator knows of them, so that nobody ends them."""
    wanted: dict[str, Any] = {"topic": topic} if topic else {}
    if max_timeout is not None:
        wanted["unused_ms"] = max_timeout * MINUTE_MS
    found = HttpApi(url, token, timeout).ask("GET", f"/v1/hanging-transactions?{urlencode(wanted)}")
    print_rows([_row(each) for each in found["data"]], output, COLUMNS)


@transactions.command("abort")
def abort(
    *,
    topic: Topic,
    partition: Partition,
    start_offset: StartOffset,
    url: Url = LOCAL,
    token: Token = "",
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """End a hanging transaction, by an operator's word. One that its coordinator knows is refused."""
    path = f"/v1/topics/{quote(topic, safe='')}/partitions/{partition}/abort"
    found = HttpApi(url, token, timeout).ask("POST", path, {"start_offset": start_offset})
    print(
        f"aborted: producer {found['producer_id']} of epoch {found['producer_epoch']} in {topic}-{partition}"
    )


def _row(found: dict[str, Any]) -> dict[str, Any]:
    return {"topic": found.pop("topic_name"), "partition": found.pop("partition_id"), **found}
