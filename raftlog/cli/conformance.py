"""`raftlog conformance`: ask any broker what Apache Kafka 4.3 was asked, and print how its answers compare.

The help loads no history, so that it answers at once.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from raftlog.base.disk import write_file
from raftlog.base.errors import KafkaError
from raftlog.cli import exits
from raftlog.cli.chaos_screen import print_table
from raftlog.cli.client_settings import addresses_of, dialer_of
from raftlog.cli.cluster_command import SHARED, verb
from raftlog.cli.end_signals import ended_by_signals
from raftlog.cli.exits import Failure
from raftlog.cli.target import Target
from raftlog.client.connection import Dialer
from raftlog.protocol.apis import ApiKey
from raftlog.security.scram_client import ServerUnproven

if TYPE_CHECKING:
    from raftlog_chaos.conformance.card.guest import Host
    from raftlog_chaos.conformance.card.result import Card, Result
    from raftlog_chaos.conformance.card.run import CardRun
    from raftlog_chaos.conformance.history import History

OPTIONS: Final = SHARED | {
    "file": (
        Annotated[
            Path | None,
            typer.Option(
                "-F", "--command-config", "--properties", metavar="FILE", help="such settings, one per line"
            ),
        ],
        None,
    ),
    "timeout": (
        Annotated[
            float,
            typer.Option("--timeout", "-m", metavar="S", min=0.1, max=3600, help="the longest for an answer"),
        ],
        20.0,
    ),
}
"""The options of all commands that talk to a cluster; an answer may take as long as where Kafka was asked."""
SHOWN: Final = 12
"""Sorts of differences in the short list of a card; --story and the files have all of them."""

conformance = typer.Typer(add_completion=False, rich_markup_mode=None)


def _file(name: str, help: str) -> Any:
    return Annotated[Path | None, typer.Option(name, metavar="FILE", dir_okay=False, help=help)]


@verb(conformance, "conformance", shared=OPTIONS)
def run(
    target: Target,
    *,
    only: Annotated[
        str, typer.Option(help="subjects or histories, with commas between: produce,groups/*")
    ] = "",
    json: _file("--json", "write the card as JSON") = None,  # type: ignore[valid-type]
    html: _file("--html", "write the card as one HTML page") = None,  # type: ignore[valid-type]
    story: Annotated[bool, typer.Option("--story", help="print each history that differs in full")] = False,
    name: Annotated[str, typer.Option(help="what the card calls the broker")] = "",
    force: Annotated[bool, typer.Option("--force", help="also on a cluster with topics of its own")] = False,
    cluster_wide: Annotated[
        bool,
        typer.Option("--cluster-wide", help="also what all clients share: broker configs, features, ..."),
    ] = False,
) -> int:
    """Compare any broker with Apache Kafka 4.3, and print a card.

    Short programs (histories) send the requests that were sent to Kafka when its answers were recorded. Each is kept,
    differs, is not supported, or was not run. At the end all that they created is removed.

    Exit code 0: no difference. 1: some histories differ. 5: the user lacks a right. 6: the broker does not answer, or
    ended before the card did.
    """
    from raftlog_chaos.conformance.card.run import CardRun
    from raftlog_chaos.conformance.history import choose

    for path in (json, html):
        if path is not None and not path.absolute().parent.is_dir():
            raise Failure(f"{path}: no such directory", exits.USAGE)
    try:
        histories = choose(only)
    except ValueError as error:
        raise Failure(f"--only: {error}", exits.USAGE) from None
    card_run = CardRun(_host(target, cluster_wide), histories, name=name, progress=Screen(histories))
    _begin(card_run, target, force=force)
    interrupted = False
    try:
        with ended_by_signals():
            card_run.run()
    except KeyboardInterrupt:
        interrupted = True
    card = card_run.card()
    _write(card, json, html)
    print_card(card, whole=story)
    return exits.INTERRUPTED if interrupted else code_of(card)


# --- before


def _host(target: Target, cluster_wide: bool) -> Host:
    """Return the broker with its versions. Raises Failure, which says what a listener wants that does not answer."""
    from raftlog_chaos.conformance.card.guest import Host
    from raftlog_chaos.conformance.card.run import host_with_versions
    from raftlog_chaos.conformance.session import NotReady

    target.ask(ApiKey.METADATA, lambda make: make.MetadataRequest(topics=()))
    servers = [f"{host}:{port}" for host, port in addresses_of(target.servers)]
    host = Host(servers, dial=_dial(dialer_of(target.settings)), answer_s=target.timeout_s)
    try:
        return host_with_versions(host)._replace(cluster_wide=cluster_wide)
    except (OSError, NotReady, LookupError) as error:
        raise Failure(f"{target.servers}: {error}", exits.UNREACHABLE) from None


def _dial(dialer: Dialer) -> Callable[[str, int, float], socket.socket]:
    """Return how histories connect; sessions handle only errors of the operating system."""

    def dial(host: str, port: int, timeout_s: float) -> socket.socket:
        try:
            return dialer.connect(host, port, timeout_s)
        except (KafkaError, ServerUnproven) as error:
            raise ConnectionError(str(error)) from None

    return dial


def _begin(card_run: CardRun, target: Target, *, force: bool) -> None:
    from raftlog_chaos.conformance.card.run import Occupied
    from raftlog_chaos.conformance.card.versions import NotServed
    from raftlog_chaos.conformance.session import NotReady

    try:
        card_run.begin(anyway=force)
    except Occupied as error:
        raise Failure(f"{error}; --force runs anyway, and touches none of them") from None
    except NotServed as error:
        raise Failure(f"{target.servers}: {error}") from None
    except (OSError, NotReady) as error:
        raise Failure(f"{target.servers}: {error}", exits.UNREACHABLE) from None


# --- meanwhile


class Screen:
    """Shows progress on standard error: a line for each subject that is done."""

    def __init__(self, histories: list[History]) -> None:
        self._waiting: dict[str, int] = {}
        for each in histories:
            if each.needs.is_any_broker:
                self._waiting[each.subject] = self._waiting.get(each.subject, 0) + 1
        self._done: dict[str, list[Result]] = {}

    def __call__(self, result: Result) -> None:
        from raftlog_chaos.conformance.card.result import count_text

        done = self._done.setdefault(result.subject, [])
        done.append(result)
        is_last = len(done) == self._waiting[result.subject]
        if sys.stderr.isatty():
            line = f"{result.subject}: {len(done)} of {self._waiting[result.subject]}"
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
        if is_last:
            start = "\r\033[K" if sys.stderr.isatty() else ""
            print(f"{start}{result.subject}: {count_text(done)}", file=sys.stderr, flush=True)


# --- at the end


def _write(card: Card, json: Path | None, html: Path | None) -> None:
    from msgspec.json import encode, format

    from raftlog_chaos.conformance.card.page import render

    if json is not None:
        _write_file(json, format(encode(card), indent=1).decode() + "\n")
    if html is not None:
        _write_file(html, render(card))


def _write_file(path: Path, text: str) -> None:
    """Write a file, or say why not: the card is printed all the same."""
    try:
        write_file(path, text)
    except OSError as error:
        print(f"raftlog: {path}: {error.strerror or error}", file=sys.stderr)


def print_card(card: Card, *, whole: bool) -> None:
    """Print the table, the histories that differ, and the sum."""
    from raftlog_chaos.conformance.card.result import OUTCOMES, closing

    print(f"{card.broker} ({card.bootstrap}) beside Apache Kafka {card.kafka}, recorded {card.recorded}\n")
    rows = [
        (subject, *(str(counts[each] or "") for each in OUTCOMES))
        for subject, counts in card.subjects.items()
    ]
    print_table(("subject", *OUTCOMES), rows, left=[0])
    for note in card.notes:
        print(f"\nnote: {note}")
    print_reasons(card)
    print_differing(card, whole=whole)
    for each in card.left:
        print(f"left behind: {each}")
    print(f"\n{closing(card)}, in {card.seconds:.0f} s")
    if card.own:
        print(f"histories that need nodes of their own are no part of a card ({card.own})")


def print_reasons(card: Card) -> None:
    """Print why histories were not run, are not supported or differ on purpose, each reason once."""
    from raftlog_chaos.conformance.card.grouping import reasons_of
    from raftlog_chaos.conformance.card.result import OUTCOMES

    for outcome in OUTCOMES:
        if outcome != "differs":
            for why, results in reasons_of(card.histories, outcome):
                print(f"{outcome} ({len(results)}): {why}")


def print_differing(card: Card, *, whole: bool) -> None:
    """Print the histories that differ: in full, or each sort of difference in a line."""
    from raftlog_chaos.conformance.card.grouping import sorts_of
    from raftlog_chaos.conformance.card.result import story_of

    if whole:
        for each in card.histories:
            if each.steps:
                print("", *story_of(each, card.broker), sep="\n")
        return
    sorts = sorts_of(card.histories)
    for sort, results in sorts[:SHOWN]:
        values = f"Kafka {sort.kafka}, here {sort.broker}" if sort.api else sort.broker
        place = " ".join(filter(None, (sort.api, sort.field)))
        print(f"differs ({len(results)}): {place}{': ' if place else ''}{values}, as in {results[0].history}")
    if len(sorts) > SHOWN:
        print(f"... and {len(sorts) - SHOWN} more sorts of differences (--story, --json and --html have all)")


def code_of(card: Card) -> int:
    """Return the exit code of a card."""
    from raftlog_chaos.conformance.card.result import NO_RIGHT

    if card.gone:
        return exits.UNREACHABLE
    if card.counts()["differs"] or card.left:
        return exits.FAILED
    lacks = any(why.startswith(NO_RIGHT) for each in card.histories for why in each.why)
    return exits.DENIED if lacks else exits.OK
