"""`raftlog server`: read the config, set up the log, run one node until it is told to stop.

Parsed with argparse, so that a node's start does not pay for typer.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from raftlog.base.config import ConfigFaults, NodeConfig, load_config, parse_file, parse_override
from raftlog.base.log import configure_log, get_logger
from raftlog.cli import exits

DESCRIPTION = (
    "Run one node. Settings: default < file < RAFTLOG_* environment < --override; see raftlog config. "
    "Without any, a node is alone: clients on port 9092, its controller on 9093, data in ./raftlog-data."
)


def parser() -> argparse.ArgumentParser:
    """Return the parser of this sub-command's arguments."""
    arguments = argparse.ArgumentParser("raftlog server", description=DESCRIPTION)
    arguments.add_argument(
        "--config",
        "-c",
        type=Path,
        default=os.environ.get("RAFTLOG_CONFIG"),
        help="a TOML file, or Java .properties as Apache Kafka's server.properties (default: $RAFTLOG_CONFIG)",
    )
    arguments.add_argument(
        "--override", action="append", default=[], metavar="NAME=VALUE", help="one setting; may be repeated"
    )
    arguments.add_argument("--exit-with-stdin", action="store_true", help=argparse.SUPPRESS)
    return arguments


def main(argv: Sequence[str]) -> None:
    """Run a node; exits with 2 on a faulty config, 1 when the node cannot start or go on."""
    arguments = parser().parse_args(argv)
    config = read_config(arguments.config, arguments.override)
    configure_log(level=config.log_level, format=config.log_format, node_id=config.node_id)
    log = get_logger("server")
    for warning in config.warnings:
        log.warning(warning.event, **warning.fields)
    if arguments.exit_with_stdin:
        exit_with_stdin()
    from raftlog import process  # after the log is set up, and only for a config that can be used

    try:
        with asyncio.Runner(loop_factory=_loop_factory(config.event_loop)) as runner:
            runner.run(process.run(config))
    except KeyboardInterrupt:
        sys.exit(exits.INTERRUPTED)
    except (process.NodeFailed, OSError) as error:
        log.error("node_failed", reason=str(error))
        sys.exit(exits.FAILED)
    except Exception:
        log.exception("node_failed")
        sys.exit(exits.FAILED)


def _loop_factory(choice: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if choice == "asyncio":
        return None
    try:
        import uvloop
    except ImportError:
        if choice == "uvloop":
            raise
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def read_config(path: Path | None, overrides: Sequence[str]) -> NodeConfig:
    """Return the config of all layers; prints all faults and exits with 2 when there are any."""
    file, faults = _read_file(path)
    flags = {}
    for override in overrides:
        try:
            name, value = parse_override(override)
            flags[name] = value
        except ValueError as error:
            faults.append(f"--override {error}")
    try:
        config = load_config(
            file, environment=os.environ, flags=flags, hostname=socket.gethostname(), working_dir=os.getcwd()
        )
    except ConfigFaults as error:
        _refuse(path, faults + [str(fault) for fault in error.faults])
    if faults:
        _refuse(path, faults)
    return config


def _read_file(path: Path | None) -> tuple[dict[str, str], list[str]]:
    """Return (settings, faults); a file that cannot be read or parsed has no settings and one fault."""
    if path is None:
        return {}, []
    try:
        return parse_file(_read_text(path), name=path.name), []
    except (OSError, ValueError) as error:
        return {}, [str(error)]


def _read_text(path: Path) -> str:
    content = path.read_bytes()
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode("latin-1")  # what java.util.Properties reads


def _refuse(path: Path | None, faults: Sequence[str]) -> NoReturn:
    where = f" in {path}" if path else ""
    print(f"raftlog: the config{where} cannot be used:", *faults, sep="\n  ", file=sys.stderr)
    sys.exit(exits.USAGE)


def exit_with_stdin() -> None:
    """End this process at once when its standard input closes: whoever started it is gone."""

    def watch() -> None:
        while os.read(0, 4096):
            pass
        os._exit(exits.FAILED)

    threading.Thread(target=watch, name="raftlog-stdin", daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1:])
