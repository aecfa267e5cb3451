"""Makes commands that talk to a cluster: each is a function of a `Target` and its own options.

The options that all of them share are added here, once, and so is the way in which topic names are completed.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from raftlog.base import variables
from raftlog.cli import contexts
from raftlog.cli.exits import INTERRUPTED, OK, Failure
from raftlog.cli.rows import Form
from raftlog.cli.target import LOCAL, TIMEOUT_S, Target

T = TypeVar("T")
COMPLETION_S: Final = 0.6
"""How long a shell's completion may wait for the cluster."""

SHARED: Final[dict[str, tuple[Any, Any]]] = {
    "bootstrap": (
        Annotated[
            str,
            typer.Option(
                "--bootstrap",
                "-b",
                "--bootstrap-server",
                metavar="HOST:PORT",
                envvar=variables.BOOTSTRAP,
                show_default=LOCAL,
                help="any node, or several with commas between",
            ),
        ],
        "",
    ),
    "setting": (
        Annotated[
            list[str] | None,
            typer.Option("-X", metavar="NAME=VALUE", help="a client's setting, by librdkafka's name"),
        ],
        None,
    ),
    "file": (
        Annotated[
            Path | None,
            typer.Option("-F", "--command-config", metavar="FILE", help="such settings, one per line"),
        ],
        None,
    ),
    "context": (
        Annotated[
            str,
            typer.Option(
                "--context",
                metavar="NAME",
                envvar=variables.CONTEXT,
                show_default=False,
                help="a saved context, see raftlog context",
            ),
        ],
        "",
    ),
    "timeout": (
        Annotated[
            float,
            typer.Option("--timeout", "-m", metavar="S", min=0.1, max=3600, help="how many seconds to wait"),
        ],
        TIMEOUT_S,
    ),
}
"""The options of every command that talks to a cluster."""
OUTPUT: Final[dict[str, tuple[Any, Any]]] = {
    "output": (Annotated[Form, typer.Option("--output", "-o", help="how to print")], Form.TABLE),
    "json": (Annotated[bool, typer.Option("--json", "-J", help="-o json")], False),
}


def noun(help: str) -> typer.Typer:
    """Return a group of commands about one kind of thing."""
    return typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, help=help)


def verb(
    app: typer.Typer,
    name: str,
    *,
    prints_rows: bool = False,
    shared: Mapping[str, tuple[Any, Any]] = SHARED,
    known: Collection[str] = (),
    former: str = "",
) -> Callable[..., Any]:
    """Make a command of `body(target, …)`; with `prints_rows`, of `body(target, …, form=…)`. It returns its exit code
    (None is 0) or raises Failure; the rest of its parameters are options, annotated for typer.

    `known`: the settings of -X that only such commands have. `former`: an earlier name, which is still accepted.
    """

    def decorate(body: Callable[..., int | None]) -> Callable[..., int | None]:
        reach = partial(target_of, known=known)
        names = (name, former) if former else (name,)
        add_command(app, names, body, reach=reach, shared=shared, prints_rows=prints_rows)
        return body

    return decorate


def target_of(given: dict[str, Any], *, known: Collection[str] = ()) -> Target:
    """Take the options that all commands share from what was given on the line."""
    settings, bootstrap = tuple(given.pop("setting") or ()), given.pop("bootstrap")
    is_addressed = bool(bootstrap) or any(each.startswith("bootstrap.servers=") for each in settings)
    file = contexts.file_of(given.pop("context"), given.pop("file"), is_addressed=is_addressed)
    return Target(bootstrap, settings, file, given.pop("timeout"), known)


def add_command(
    app: typer.Typer,
    names: tuple[str, ...],
    body: Callable[..., int | None],
    *,
    reach: Callable[[dict[str, Any]], Any],
    shared: Mapping[str, tuple[Any, Any]],
    prints_rows: bool,
) -> None:
    """Make a command of `body(reached, …)`: `reach` takes the `shared` options from what was given on the line.

    Of its `names`, help and completion show only the first.
    """

    def run(**given: Any) -> None:
        reached = reach(given)
        if prints_rows:
            given["form"] = _form_of(given)
        try:
            with closing(reached) if hasattr(reached, "close") else nullcontext():
                code = body(reached, **given) or 0
        except Failure as failure:
            raise contexts.named(failure, getattr(reached, "file", None)) from None
        name = contexts.name_of(getattr(reached, "file", None))
        if name and code not in (OK, INTERRUPTED):  # it printed its errors itself
            print(f"raftlog: the cluster is that of context {name}", file=sys.stderr)
        raise typer.Exit(code)

    own = list(inspect.signature(body, eval_str=True).parameters.values())[1:]
    run.__doc__ = body.__doc__
    _declare(
        run,
        [each for each in own if each.name != "form"],
        {**shared, **(OUTPUT if prints_rows else {})},
    )
    for name in names:
        app.command(name, hidden=name != names[0])(run)


def _form_of(given: dict[str, Any]) -> Form:
    """Take from what was given on the line how rows are to be printed."""
    form: Form = given.pop("output")
    return Form.JSON if given.pop("json") else form


def _declare(run: Any, parameters: list[inspect.Parameter], shared: Mapping[str, tuple[Any, Any]]) -> None:
    """Give a function the signature that typer is to read."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    every = [each.replace(kind=keyword) for each in parameters]
    every += [
        inspect.Parameter(name, keyword, default=default, annotation=annotation)
        for name, (annotation, default) in shared.items()
    ]
    run.__signature__ = inspect.Signature(every)
    run.__annotations__ = {each.name: each.annotation for each in every}


def not_empty(given: T) -> T:
    """Return what was given. Raises BadParameter, which is wrong usage, if it is, or holds, an empty name."""
    if given == "" or (isinstance(given, list) and "" in given):
        raise typer.BadParameter("a name is empty")
    return given


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of topics that begin so; none when the cluster does not answer at once."""
    try:
        bootstrap, named = (context.params.get(name) or "" for name in ("bootstrap", "context"))
        file = contexts.file_of(named, None, is_addressed=bool(bootstrap))
        target = Target(bootstrap, file=file, timeout_s=COMPLETION_S)
        with closing(target):
            names = target.topics()
    except Exception:  # whatever it is, a shell that waits for words has no use for it
        return []
    return sorted(name for name in names if name.startswith(incomplete))


Topic = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=complete_topic)]
Topics = Annotated[list[str], typer.Argument(metavar="TOPIC", autocompletion=complete_topic)]
