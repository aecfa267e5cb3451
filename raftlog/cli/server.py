"""`raftlog server`: read the config, set up the log, run one node until it is stopped.

Parsed with argparse, so that a node's start does not pay for typer.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

from raftlog import __version__
from raftlog.base import variables
from raftlog.base.config import (
    ConfigFaults,
    NodeConfig,
    is_secret,
    load_config,
    parse_file,
    parse_override,
)
from raftlog.base.disk import FOLDER_MODE, make_folders
from raftlog.base.env import Env
from raftlog.base.log import configure_log, flush_log, get_logger
from raftlog.cli import exits

if TYPE_CHECKING:
    from pathlib import Path  # not in a node: it takes 770 KB

    from raftlog.faults.link_faults import LinkFaults
    from raftlog.faults.node_faults import NodeFaults

MAX_BROKERS = 64
"""Brokers of one `raftlog server`, each on a core."""

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
        default=os.environ.get(variables.CONFIG),
        help="a TOML file, or Java .properties as Apache Kafka's server.properties (default: $RAFTLOG_CONFIG)",
    )
    arguments.add_argument(
        "--override", action="append", default=[], metavar="NAME=VALUE", help="one setting; may be repeated"
    )
    arguments.add_argument(
        "--brokers",
        type=int,
        default=1,
        metavar="N",
        help="run N brokers on this machine, a process each, at ports 10 apart; clients need the first one's address",
    )
    arguments.add_argument("--exit-with-stdin", action="store_true", help=argparse.SUPPRESS)
    arguments.add_argument(
        "--enable-faults",
        action="store_true",
        help="for tests only: JSON lines on standard input can make the disk slow, full or failing and the clock jump",
    )
    arguments.add_argument("--dev-folder", metavar="FOLDER", help=argparse.SUPPRESS)
    arguments.add_argument("--fault", action="append", default=[], metavar="JSON", help=argparse.SUPPRESS)
    return arguments


def main(argv: Sequence[str]) -> None:
    """Run a node; exits with 2 on a faulty config, 1 when the node cannot start or go on."""
    _open_standard_descriptors()
    arguments = parser().parse_args(argv)
    _judge_brokers(arguments)
    config = read_config(arguments.config, arguments.override)
    if arguments.brokers > 1:
        from raftlog.cli import supervisor

        supervisor.main(config, arguments.config, arguments.override, arguments.brokers)
    configure_log(
        level=config.log_level,
        format=config.log_format,
        node_id=config.node_id,
        audit_file=config.audit_file,
    )
    log = get_logger("server")
    log.info("server_started", version=__version__, config=str(arguments.config or "none"))
    for warning in config.warnings:
        log.warning(warning.event, **warning.fields)
    env: Env | None = None
    faults: LinkFaults | None = None
    if arguments.enable_faults:
        env, faults = _with_faults(config, arguments.fault, exit_at_end=arguments.exit_with_stdin)
    elif arguments.exit_with_stdin:
        watch_stdin(None, exit_at_end=True)
    dev = None
    if arguments.dev_folder:
        from raftlog.cli.dev_control import DevSocket

        dev = DevSocket(arguments.dev_folder)
        faults = faults or _link_faults()
    from raftlog import process  # after the log is set up, and only for a config that can be used

    controls = process.Controls(faults, dev, None if faults is None else faults.links.watch)
    try:
        with (
            _signals_ignored_at_end(),
            asyncio.Runner(loop_factory=_loop_factory(config.event_loop)) as runner,
        ):
            runner.run(process.run(config, env=env, controls=controls))
    except KeyboardInterrupt:
        sys.exit(exits.INTERRUPTED)
    except (process.NodeFailed, OSError) as error:
        log.error("node_failed", reason=str(error))
        sys.exit(exits.FAILED)
    except Exception:
        log.exception("node_failed")
        sys.exit(exits.FAILED)


@contextmanager
def _signals_ignored_at_end() -> Iterator[None]:
    """Ignore SIGTERM and SIGINT afterwards: with its loop closed, a second signal would end a node that has stopped.

    Its exit code would say that it was killed.
    """
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)


def _open_standard_descriptors() -> None:
    """Open standard input, output and error where the process was started without them.

    A data file would get that number otherwise, and whatever a library prints would be written into it.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free


def _judge_brokers(arguments: argparse.Namespace) -> None:
    """Exit with 2 for a number of brokers that is none, or with options of a single node."""
    if not 1 <= arguments.brokers <= MAX_BROKERS:
        parser().error(f"--brokers must be 1 to {MAX_BROKERS}, not {arguments.brokers}")
    if arguments.brokers > 1 and (arguments.enable_faults or arguments.exit_with_stdin):
        parser().error(
            "--brokers does not go with --enable-faults or --exit-with-stdin, which are for one node"
        )


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


def read_config(path: Path | str | None, overrides: Sequence[str]) -> NodeConfig:
    """Return the config of all layers; prints all faults and exits with 2 when there are any."""
    file, faults = read_config_file(path)
    flags = {}
    for override in overrides:
        try:
            name, value = parse_override(override)
            flags[name] = value
        except ValueError as error:
            faults.append(f"--override {error}")
    environment = dict(os.environ)
    faults += read_secret_files(environment)
    try:
        config = load_config(
            file, environment=environment, flags=flags, hostname=socket.gethostname(), working_dir=os.getcwd()
        )
    except ConfigFaults as error:
        _refuse(path, faults + [str(fault) for fault in error.faults])
    if faults:
        _refuse(path, faults)
    return config


def read_config_file(path: Path | str | None) -> tuple[dict[str, str], list[str]]:
    """Return (settings, faults); a file that cannot be parsed has no settings and one fault.

    Exits with 2 if there is no such file.
    """
    if path is None:
        return {}, []
    try:
        return parse_file(_read_text(path), name=os.path.basename(path)), []
    except OSError as error:  # the name of the file is in the error
        print(f"raftlog: --config {path}: {error.strerror}", file=sys.stderr)
        sys.exit(exits.USAGE)
    except ValueError as error:
        return {}, [str(error)]


def read_secret_files(environment: dict[str, str]) -> list[str]:
    """Replace each RAFTLOG_X_FILE of a secret X by RAFTLOG_X with what the file holds, as container images do.

    Returns a fault for each file that cannot be read; an empty file, and X set twice, are faults too.
    """
    faults = []
    for variable in sorted(environment):
        name = variable.removesuffix("_FILE")
        if name == variable or not is_secret(name):
            continue
        path = environment.pop(variable)
        try:
            with open(path, encoding="utf-8-sig") as file:
                secret = file.read().strip()
        except (OSError, UnicodeDecodeError) as error:
            faults.append(f"{name}_FILE: {error}")
            continue
        if not secret or name in environment:
            faults.append(f"{name}_FILE: " + (f"{name} is set, too" if secret else f"{path} is empty"))
        environment.setdefault(name, secret)
    return faults


def _read_text(path: Path | str) -> str:
    with open(path, "rb") as file:
        content = file.read()
    try:
        return content.decode("utf-8-sig")  # editors on Windows begin files with a mark
    except UnicodeDecodeError:
        return content.decode("latin-1")  # what java.util.Properties reads


def _refuse(path: Path | str | None, faults: Sequence[str]) -> NoReturn:
    where = f" in {path}" if path else ""
    print(f"raftlog: the config{where} cannot be used:", *faults, sep="\n  ", file=sys.stderr)
    sys.exit(exits.USAGE)


def watch_stdin(obey: Callable[[bytes], bytes] | None, *, exit_at_end: bool) -> None:
    """Obey each line of standard input, and answer there (on a socket; a pipe gets no answer). With `exit_at_end` this
    process ends at once when it closes: its parent is gone.
    """

    def watch() -> None:
        rest = b""
        while received := os.read(0, 4096):
            *lines, rest = (rest + received).split(b"\n")
            if obey is not None:
                for line in lines:
                    with suppress(OSError):
                        os.write(0, obey(line) + b"\n")
        if exit_at_end:
            flush_log()
            os._exit(exits.FAILED)

    threading.Thread(target=watch, name="raftlog-stdin", daemon=True).start()


def _with_faults(config: NodeConfig, faults: Sequence[str], *, exit_at_end: bool) -> tuple[Env, NodeFaults]:
    """Return an environment with injectable faults: the given faults, then faults from standard input and from the
    holder of the second value.
    """
    from raftlog.faults.node_faults import NodeFaults, read_fault

    folders = list(dict.fromkeys([*config.log_dirs, config.metadata_log_dir]))
    get_logger("server").warning("faults_enabled", advice="for tests only", directories=folders)
    for folder in folders:
        make_folders(folder, FOLDER_MODE)
    node_faults = NodeFaults(folders)
    for fault in faults:
        node_faults.inject(read_fault(fault))
    watch_stdin(node_faults.obey, exit_at_end=exit_at_end)
    return Env(disk=node_faults.disk, wall_clock_ms=node_faults.wall_clock_ms), node_faults


def _link_faults() -> LinkFaults:
    """Return what cuts a node of `raftlog dev` off from the others."""
    from raftlog.faults import link_faults

    return link_faults.LinkFaults()


if __name__ == "__main__":
    main(sys.argv[1:])
