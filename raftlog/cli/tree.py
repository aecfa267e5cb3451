"""The root of the command tree: it knows names and one line of help; a command's module is imported when it runs.

Every failure ends here as one line on standard error and an exit code.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, Final, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from raftlog.cli import exits
from raftlog.cli.commands import FORMER, OTHER_WORDS, Entry
from raftlog.cli.printable import printable

_USAGE_ERROR: Any = typer.BadParameter.__mro__[1]
"""It is of the click that typer brings along, under a private name."""


def load(entry: Entry, name: str) -> Any:
    """Import the command."""
    module, _, attribute = entry.target.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    if not isinstance(found, typer.Typer):
        found = _as_app(found, name)
    found.rich_markup_mode = None  # help is plain text everywhere: the same in a pipe, and rich is not loaded
    is_group = len(found.registered_commands) > 1 or found.registered_callback is not None
    command = typer.main.get_group(found) if is_group else typer.main.get_command(found)
    command.name = name
    for each in getattr(command, "commands", {}).values():
        each.short_help = _first_sentence(each.help or "")
        _add_context(each)
    _add_context(command)
    return command


def _add_context(command: Any) -> None:
    """Add the command to errors of its line: the library leaves it out of that for an option without a value."""
    parse = command.parse_args

    def parse_args(ctx: Any, args: list[str]) -> list[str]:
        try:
            return list(parse(ctx, args))
        except _USAGE_ERROR as error:
            error.ctx = error.ctx or ctx
            raise

    command.parse_args = parse_args


def _first_sentence(help: str) -> str:
    """Return the line of a command in its group's help: the whole first sentence, which typer would cut short."""
    paragraph = " ".join(help.split("\n\n", maxsplit=1)[0].split())
    return paragraph.partition(". ")[0].rstrip(".") + "."


def _as_app(function: Any, name: str) -> typer.Typer:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(name)(_spread(function))
    return app


def _spread(function: Any) -> Any:
    """Return a function with the fields of a dataclass as its parameters, if it takes a dataclass."""
    options = next(iter(get_type_hints(function).values()))
    if not isinstance(options, type) or not is_dataclass(options):
        return function

    def run(**given: Any) -> Any:
        return function(options(**given))

    run.__doc__ = function.__doc__
    run.__annotations__ = get_type_hints(options, include_extras=True)
    run.__signature__ = inspect.signature(options, eval_str=True)  # type: ignore[attr-defined]
    return run


PLAIN_WORDS: Final = {
    "Value error, ": "",
    "Input should be a valid integer, unable to parse string as an integer": "must be a whole number",
    "Input should be a valid number, unable to parse string as a number": "must be a number",
}
"""What the library that reads arguments says, and what to print instead."""


class Tree(TyperGroup):
    """A group with stand-ins for commands, sufficient for listing, until a command is called."""

    entries: Mapping[str, Entry] = {}

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, entry in self.entries.items():
            self.commands[name] = TyperCommand(name, help=entry.help, rich_markup_mode=None)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of the help page."""
        return list(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Put the real command in the place of its stand-in."""
        args = [FORMER.get(args[0], args[0]), *args[1:]]
        if args[0] in OTHER_WORDS:
            meant = f"raftlog {OTHER_WORDS[args[0]]}"
            raise _USAGE_ERROR(f"No such command '{args[0]}'. Did you mean `{meant}`?", ctx=ctx)
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and name in self.entries:
            command = load(self.entries[name], name)
        return name, command, rest

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands by section."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, entry in self.entries.items():
            sections.setdefault(entry.section, []).append((name, entry.help))
        for section, rows in sections.items():
            with formatter.section(section):
                formatter.write_dl(rows)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the exit codes."""
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in exits.TABLE])

    def invoke(self, ctx: Any) -> Any:
        """Run the command; a failure becomes a line and a code."""
        try:
            return super().invoke(ctx)
        except exits.Failure as failure:
            for line in (f"raftlog: {failure}", *failure.details):
                print(printable(line), file=sys.stderr)
            raise typer.Exit(failure.code) from None
        except BrokenPipeError:
            # the reader has closed our output; the interpreter's end must not write either
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(exits.FAILED) from None

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run, and exit with a code; wrong usage is one line that says where to read more."""
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except _USAGE_ERROR as error:
            code = _refuse(error)
        except typer.Abort:  # Ctrl-C or the end of input where a password is asked for
            print(file=sys.stderr)
            code = exits.INTERRUPTED
        except SystemError as error:  # a C library returned although Ctrl-C had been noticed in it
            if not isinstance(error.__cause__, KeyboardInterrupt):
                raise
            code = exits.INTERRUPTED
        if standalone_mode:
            sys.exit(code if isinstance(code, int) else 0)
        return code


def _message_of(error: Any) -> str:
    """Return the message of an error, for an unknown option with the nearest option of the command."""
    name = getattr(error, "option_name", None)
    if not hasattr(error, "possibilities") or not name or error.ctx is None:
        return str(error.format_message())
    import difflib

    known = [each for option in error.ctx.command.params for each in (*option.opts, *option.secondary_opts)]
    near = [each for each in known if each.startswith("-") and each.lower() == name.lower()]
    near += difflib.get_close_matches(
        name, [each for each in known if each.startswith("--")], n=1, cutoff=0.7
    )
    return str(error.message) + (f". Did you mean {near[0]}?" if near else "")


def _refuse(error: Any) -> int:
    message = _message_of(error)
    for theirs, plain in PLAIN_WORDS.items():
        message = message.replace(theirs, plain)
    if message.startswith("Usage:"):  # a group without a command: the message is its help
        print(message, file=sys.stderr)
        return exits.USAGE
    command = error.ctx.command_path if error.ctx else "raftlog"
    print(f"raftlog: {message.rstrip('.').replace(chr(10), ' ')} (see {command} --help)", file=sys.stderr)
    return exits.USAGE
