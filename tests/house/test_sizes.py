"""How big things may grow. Exceptions are listed by name, and the list only shrinks."""

from __future__ import annotations

from tests.house.source import Function, every_module, functions_of, judge

FUNCTION_LINES = 70
FILE_LINES = 600
PARAMETERS = 6
SHORT_LINES = 40
SHORT_SHARE = 0.9

LONG_FUNCTIONS: frozenset[str] = frozenset()
LONG_FILES: frozenset[str] = frozenset()
MANY_PARAMETERS: frozenset[str] = frozenset(
    {
        "raftlog/base/config/setting.py:setting",  # a row of the settings table has that many columns
        "raftlog/quorum/core.py:RaftCore.__init__",
        "raftlog/quorum/driver.py:Driver.__init__",
        "raftlog/quorum/raft_links.py:RaftLinks.__init__",
        "raftlog/quorum/quorum.py:Quorum.__init__",
        "raftlog/replication/partition.py:Partition.read",
        "raftlog/storage/log.py:Log.open",
    }
)


def every_function() -> list[Function]:
    return [function for module in every_module() for function in functions_of(module)]


def test_no_function_is_over_70_lines():
    """A function that does not fit on a screen is not read."""
    judge({each.label for each in every_function() if each.lines > FUNCTION_LINES}, LONG_FUNCTIONS)


def test_nine_in_ten_functions_are_under_40_lines():
    """The limit is no aim."""
    lengths = [each.lines for each in every_function()]
    assert sum(length < SHORT_LINES for length in lengths) >= SHORT_SHARE * len(lengths)


def test_no_file_is_over_600_lines():
    """A file is one thought."""
    judge({module.name for module in every_module() if module.lines > FILE_LINES}, LONG_FILES)


def test_no_function_takes_more_than_six_parameters():
    """More of them want to be a value with a name; typer's commands are exempt, their parameters are the options."""
    too_many = {
        each.label for each in every_function() if _parameters(each) > PARAMETERS and not _is_command(each)
    }
    judge(too_many, MANY_PARAMETERS)


def _is_command(function: Function) -> bool:
    """Return whether typer reads its parameters: it is decorated as a command, or named as a command in the tree."""
    is_listed = function.label.startswith(("raftlog/cli/dev.py:", "raftlog/cli/format.py:format_folders"))
    return function.label.startswith("raftlog/cli/") and bool(function.node.decorator_list or is_listed)


def _parameters(function: Function) -> int:
    arguments = function.node.args
    count = len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs)
    return count - (1 if function.in_class else 0)
