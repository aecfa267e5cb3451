"""`raftlog dev`: three nodes on this machine at the usual ports, until Ctrl-C; only --data is left behind.

A folder that is kept also keeps the cluster's addresses and secret (dev.json): to other voters its data would be
foreign.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from raftlog.base import variables
from raftlog.cli.background import Ready, continue_in_background
from raftlog.cli.dev_control import ENDED, Control, Controlled, DevNodes, is_running, stop_signals
from raftlog.cli.dev_nodes import (
    LAYOUT,
    POINTER,
    TEMPORARY,
    add_commands,
    is_node,
    remove_pointers,
    running_folders,
)
from raftlog.cli.end_signals import ended_by_signals
from raftlog.cli.exits import FAILED, OK, USAGE, Failure

NODES: Final = 3
FIRST_KAFKA_PORT: Final = 9092
FIRST_CONTROLLER_PORT: Final = 9192
FIRST_HTTP_PORT: Final = 9644
FIRST_SCHEMA_PORT: Final = 8081
LOG: Final = "dev.log"
"""What a cluster in the background says once it is ready."""
CLOCK: Final = {"raftlog.clock.leap.max.ms": str(4 * 86_400_000)}
"""The clock of a developer's machine needs no confirmation after a long weekend."""
PARSERS: Final = {"avro": "Avro", "jsonschema": "JSON Schema", "proto_schema_parser": "Protobuf"}
"""Types of schemas by the package that parses them."""
POLL_INTERVAL_S: Final = 0.5
LOST: Final = (
    "it holds the addresses and the secret of the cluster whose data is beside it; put back a copy of it,"
    " or take another folder"
)


@dataclass(frozen=True, slots=True)
class Layout:
    """The addresses of a cluster's nodes (by node id), and the secret that they share."""

    secret: str
    kafka: dict[int, int]
    controller: dict[int, int]
    http: dict[int, int]
    secure: bool = False
    faults: bool = False
    """Whether nodes can be hurt: a folder that ran so must go on so."""
    schemas: dict[int, int] = field(default_factory=dict)
    """Ports of the schema registry; none in a folder of an older release."""

    @property
    def ports(self) -> list[int]:
        """All of them."""
        return [*self.kafka.values(), *self.controller.values(), *self.http.values(), *self.schemas.values()]


@dataclass(frozen=True, slots=True)
class Asked:
    """The options on the line. 0 nodes: three, or as many as the folder's."""

    nodes: int
    port: int
    secure: bool
    faults: bool
    is_port_given: bool = False
    """Whether --port was on the line, so that no other port will do."""


dev = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    invoke_without_command=True,
    help="Run a cluster on this machine until Ctrl-C, or in the background; kill, pause and restart its nodes.",
)
add_commands(dev)


@dev.callback()
def run(
    context: typer.Context,
    *,
    nodes: Annotated[
        int,
        typer.Option(
            min=0, max=9, help="how many; 0: three, or as many as the folder has", show_default=False
        ),
    ] = 0,
    data: Annotated[
        Path | None, typer.Option(help="a folder to keep the data in (default: a temporary folder)")
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            "--port",
            "-p",
            min=1024 + FIRST_KAFKA_PORT - FIRST_SCHEMA_PORT,
            max=64_000,
            help="Kafka's port of node 1, then counting up; from 32768 on, connections may hold ports, too",
        ),
    ] = FIRST_KAFKA_PORT,
    secure: Annotated[
        bool, typer.Option("--secure", help="with TLS, logins and rights, and three users to try them with")
    ] = False,
    setting: Annotated[
        list[str] | None, typer.Option("--override", metavar="NAME=VALUE", help="a setting of every node")
    ] = None,
    enable_faults: Annotated[
        bool, typer.Option("--enable-faults", help="allow faults over HTTP, and in the console's Chaos")
    ] = False,
    detach: Annotated[
        bool,
        typer.Option("--detach", help="return once the cluster is ready; `raftlog dev stop` ends it"),
    ] = False,
) -> None:
    """Run a cluster on this machine until Ctrl-C: to develop a program against, or to explore.

    Without --port, ports in use are replaced by free ports, and printed. While it runs, the commands below act on its
    nodes.
    """
    if context.invoked_subcommand is not None:
        if any(str(context.get_parameter_source(name)).endswith("COMMANDLINE") for name in context.params):
            raise typer.BadParameter("options go behind the command")
        return
    from raftlog.cli.client_settings import read_settings

    settings = read_settings(setting or [])
    _check(settings)
    _check_folder(data)
    ready: Ready | None = None
    folder = data
    if detach:
        code, ready = continue_in_background()
        if code is not None:
            raise typer.Exit(code)
    try:
        with _folder(data) as (folder, kept), ended_by_signals():
            is_port_given = str(context.get_parameter_source("port")).endswith("COMMANDLINE")
            asked = Asked(nodes, port, secure, enable_faults, is_port_given)
            raise typer.Exit(_run(folder, kept, asked=asked, settings=settings, ready=ready))
    except KeyboardInterrupt:
        _say_ended(folder)
    except OSError as error:
        raise Failure(f"{error.filename}: {error.strerror}" if error.filename else str(error)) from None


def _say_ended(folder: Path | None) -> None:
    """Say at Ctrl-C what `raftlog dev stop` says, below the ^C of a terminal."""
    if folder is None or sys.stderr is None:
        return
    with suppress(OSError, ValueError):  # the terminal is gone
        line = f"{ENDED.format(folder)}\n"
        if sys.stderr.isatty():
            line = f"\n{line}"
        os.write(sys.stderr.fileno(), line.encode(errors="surrogateescape"))


def _check(settings: Mapping[str, str]) -> None:
    """Find faults before any node is started. Raises Failure."""
    from raftlog.base.config import ConfigFaults, load_config

    try:
        load_config({}, environment={}, flags=settings, hostname="localhost", working_dir=".")
    except ConfigFaults as error:
        raise Failure(
            "; ".join(f"--override {each.name}: {each.rule}" for each in error.faults), USAGE
        ) from None


def _check_folder(data: Path | None) -> None:
    """Raise Failure for a --data that is a file, or the folder of a cluster that runs."""
    if data is None:
        return
    if data.exists() and not data.is_dir():
        raise Failure(f"--data {data}: must be a folder, but is a file", USAGE)
    if is_running(data):
        raise Failure(
            f"a `raftlog dev` runs in {data} already: `raftlog dev status --data {data}` shows it, and "
            f"`raftlog dev stop --data {data}` ends it"
        )


@contextmanager
def _folder(data: Path | None) -> Iterator[tuple[Path, bool]]:
    """Give a folder, and whether it stays. Commands find a folder that stays by a pointer to it."""
    with tempfile.TemporaryDirectory(prefix=TEMPORARY, ignore_cleanup_errors=True) as temporary:
        if data is None:
            yield Path(temporary), False
            return
        from raftlog.base.disk import FOLDER_MODE, make_folders, write_file

        make_folders(data, FOLDER_MODE)
        remove_pointers(data.resolve())
        write_file(Path(temporary) / POINTER, str(data.resolve()), secret=True)
        yield data.resolve(), True


def _run(folder: Path, kept: bool, *, asked: Asked, settings: Mapping[str, str], ready: Ready | None) -> int:
    from raftlog.testing.cluster import AdminCluster, ClusterError

    layout, moved = _layout(folder, asked)
    kind: Any = AdminCluster
    if asked.secure:
        from raftlog.testing.secure_cluster import SecureCluster

        kind = SecureCluster

    class Here(Controlled, kind):  # type: ignore[misc]  # one of two, which are the same to what follows
        """A cluster at the ports of the layout."""

        def open_hosts(self, nodes: int) -> Any:
            return _Ports(layout)

    own = {"raftlog.cluster.secret": layout.secret, "num.partitions": "3", **CLOCK, **settings}
    options = {"directory": folder, "settings": own, "faults": layout.faults}
    with closing(_open(lambda: Here(len(layout.kafka), **options))) as cluster:
        try:
            took_s = cluster.start()
        except ClusterError as error:
            message, *log = str(error).splitlines()
            raise Failure(message, details=log) from None
        where = _where(folder, kept, cluster.nodes[1].port)
        _tell(cluster, kept=kept, took_s=took_s, asked=asked, where=where, moved=moved)
        print(f"`raftlog dev stop{where}` ends it." if ready else "Ctrl-C ends it.", flush=True)
        nodes = DevNodes(cluster, where)
        try:
            with closing(Control(folder, nodes)) as control:
                if ready:
                    ready(folder / LOG)
                return _watch(cluster, nodes, control, where=where)
        finally:
            _stop(cluster)


def _where(folder: Path, kept: bool, port: int) -> str:
    """Return the options by which commands find this cluster, which other clusters may make ambiguous."""
    if kept:
        return f" --data {folder}"
    return f" -p {port}" if running_folders() else ""


def _open(make: Callable[[], Any]) -> Any:
    """Return a cluster. Raises Failure where its certificates cannot be made."""
    from raftlog.testing.certificates import CertificatesUnusable

    try:
        return make()
    except CertificatesUnusable as error:
        raise Failure(str(error)) from None


def _layout(folder: Path, asked: Asked) -> tuple[Layout, str]:
    """Return the layout that a folder was used with, or a new layout, stored there. Raise Failure.

    Return also why it has other ports than were asked for; "" if it has not.
    """
    path = folder / LAYOUT
    if path.exists():
        return _read_layout(path, asked), ""
    nodes, port = asked.nodes or NODES, asked.port
    import secrets

    from raftlog.base.disk import write_file

    wanted = ports_of(port, nodes)
    taken = next((each for each in wanted if not _is_free(each)), None)
    moved = "" if taken is None else f"port {taken} is {_whose(taken)}"
    if moved and asked.is_port_given:
        ranges = ", ".join(
            f"{first}-{first + nodes - 1}" if nodes > 1 else str(first) for first in wanted[::nodes]
        )
        raise Failure(
            f"--port {port}: {moved}; the cluster needs {ranges}: free them, or choose another --port"
        )
    ports = [*_free_ports(wanted[: 3 * nodes]), *_free_ports(wanted[3 * nodes :])]
    kafka, controller, http, schemas = (
        dict(enumerate(ports[kind * nodes : (kind + 1) * nodes], 1)) for kind in range(4)
    )
    layout = Layout(secrets.token_hex(16), kafka, controller, http, asked.secure, asked.faults, schemas)
    write_file(path, json.dumps(asdict(layout)), secret=True)
    return layout, moved


def ports_of(port: int, nodes: int) -> list[int]:
    """Return the ports of a cluster at a --port: each node's of Kafka, of controllers, HTTP and the schema registry."""
    apart = port - FIRST_KAFKA_PORT
    firsts = (port, FIRST_CONTROLLER_PORT + apart, FIRST_HTTP_PORT + apart, FIRST_SCHEMA_PORT + apart)
    return [first + number for first in firsts for number in range(nodes)]


def _whose(port: int) -> str:
    """Return in words what holds a port that is not free."""
    from raftlog.cli.doctor.network import holder_of

    holder = holder_of(port)
    if holder is None:
        return "taken, by a connection or a process of another user"
    process, name = holder
    return f"taken by process {process} ({name}{', a node of `raftlog dev`' if is_node(process) else ''})"


def _free_ports(wanted: list[int]) -> list[int]:
    """Return these ports if all are free, otherwise as many others."""
    if all(map(_is_free, wanted)):
        return wanted
    from raftlog.testing.ports import HeldPorts

    spare = HeldPorts(len(wanted))
    spare.release()
    return spare.ports


def _read_layout(path: Path, asked: Asked) -> Layout:
    try:
        text = path.read_text()
        if not text.strip("\0 \n"):
            raise Failure(
                f"{path} is empty, as an older release left it after a power failure: {LOST}", USAGE
            )
        found = json.loads(text)
        found.setdefault("schemas", {})  # of an older release's folder
        kafka, controller, http, schemas = (
            {int(node): int(port) for node, port in found[kind].items()}
            for kind in ("kafka", "controller", "http", "schemas")
        )
        secure, faults = (bool(found.get(name, False)) for name in ("secure", "faults"))
        layout = Layout(str(found["secret"]), kafka, controller, http, secure, faults, schemas)
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise Failure(f"{path} is damaged ({_fault(error)}): {LOST}", USAGE) from None
    if asked.nodes and len(layout.kafka) != asked.nodes:
        raise Failure(
            f"{path.parent} belongs to a cluster of {len(layout.kafka)} nodes: use --nodes {len(layout.kafka)}",
            USAGE,
        )
    if layout.secure != asked.secure:
        say = "say --secure" if layout.secure else "--secure needs a folder of its own"
        raise Failure(
            f"{path.parent} belongs to a cluster {'with' if layout.secure else 'without'} logins: {say}",
            USAGE,
        )
    if asked.faults and not layout.faults:
        raise Failure(f"{path.parent} was created without --enable-faults: use another folder", USAGE)
    first = layout.kafka[1]
    if asked.is_port_given and asked.port != first:
        raise Failure(
            f"{path.parent} belongs to a cluster at port {first}: leave out --port {asked.port}", USAGE
        )
    taken = [each for each in layout.ports if not _is_free(each)]
    if taken:
        raise Failure(
            f"{path.parent} belongs to a cluster whose ports are in use: {', '.join(map(str, taken))}; "
            f"port {taken[0]} is {_whose(taken[0])}"
        )
    return layout


def _fault(error: Exception) -> str:
    """Say in words why a layout cannot be read."""
    if isinstance(error, KeyError):
        return f"it has no {error.args[0]!r}"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, json.JSONDecodeError):
        return f"no JSON from line {error.lineno}, column {error.colno} on"
    return str(error)


def _is_free(port: int) -> bool:
    import socket

    from raftlog.testing.ports import LOOPBACK

    with socket.socket() as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind((LOOPBACK, port))
            attempt.listen(1)
        except OSError:
            return False
    return True


class _Ports:
    """Nodes on loopback at the ports of a layout."""

    def __init__(self, layout: Layout) -> None:
        from raftlog.testing.hosts import Addresses
        from raftlog.testing.ports import LOOPBACK

        self.addresses = {
            node: Addresses(
                LOOPBACK, port, layout.controller[node], layout.http[node], layout.schemas.get(node, 0)
            )
            for node, port in layout.kafka.items()
        }

    def inside(self, node_id: int) -> AbstractContextManager[object]:
        """Every process is there already."""
        assert node_id in self.addresses
        return nullcontext()

    def release(self) -> None:
        """Do nothing: the nodes themselves hold the ports."""


def _tell(cluster: Any, *, kept: bool, took_s: float, asked: Asked, where: str, moved: str) -> None:
    """Say where the cluster is, and three things to try."""
    many = "1 node" if len(cluster.nodes) == 1 else f"{len(cluster.nodes)} nodes"
    first = cluster.nodes[1].port
    at = "" if first == FIRST_KAFKA_PORT else f" -b localhost:{first}"
    lines = [
        f"{many} ready in {took_s:.1f} s{f'  (at other ports: {moved})' if moved else ''}",
        f"  Kafka  {cluster.bootstrap_servers}",
        f"  HTTP   {', '.join(map(cluster.admin_url, cluster.nodes))}",
        *_registries(cluster),
        f"Open {cluster.admin_url(1)} in a browser to see it.",
        f"  {cluster.admin_url(1)}/#/chaos kills, pauses, cuts off and restarts nodes"
        f"{' and injects faults' if asked.faults else ''}, with a small load to watch.",
        f"  data   {cluster.directory}  ({'kept' if kept else 'deleted at the end'})",
    ]
    if asked.secure:
        from raftlog.cli.dev_secure import open_doors, what_to_try

        open_doors(cluster)
        lines += what_to_try(cluster)
    else:
        lines += [
            "Try, in another terminal:",
            f"  raftlog topic create orders{at} --partitions 3",
            f"  seq 1000 | raftlog produce{at} -t orders",
            f"  raftlog consume{at} -t orders -e -c 3 -f '%t %p %o %s\\n'",
        ]
        if len(cluster.nodes) > 1:
            lines += [
                "So that commands ask another node when one is down or hangs:",
                f"  export {variables.BOOTSTRAP}={cluster.bootstrap_servers}",
                "Kill a node, or pause it, and start it again:",
                f"  raftlog dev kill 2{where}",
                f"  raftlog dev restart 2{where}",
            ]
    print(*lines, sep="\n", flush=True)


def _registries(cluster: Any) -> list[str]:
    """Return the line with the addresses of the schema registry, if this cluster has it."""
    urls = [
        cluster.schema_registry_url(each) for each in cluster.nodes if cluster.addresses[each].schema_port
    ]
    return [f"  schema registry  {', '.join(urls)}{_missing_parsers()}"] if urls else []


def _missing_parsers() -> str:
    """Return the types of schemas without a parser here, for the registry's line; "" if all have one."""
    from importlib.util import find_spec

    missing = [kind for package, kind in PARSERS.items() if find_spec(package) is None]
    if not missing:
        return ""
    *most, last = missing
    joined = f"{', '.join(most)} and {last} need" if most else f"{last} needs"
    return f"  ({joined} raftlog[schema])"


def _watch(cluster: Any, nodes: DevNodes, control: Control, *, where: str) -> int:
    """Serve callers until the cluster is to end, and say when a node ends; return when all have ended by themselves."""
    known: set[int] = set()
    while not nodes.is_stopped:
        control.serve(POLL_INTERVAL_S)
        ended = {node_id for node_id, node in cluster.nodes.items() if not node.running}
        for node_id in sorted(ended - known - nodes.ended_on_request):
            print(
                f"node {node_id} ended; its log is {cluster.nodes[node_id].log_path};"
                f" `raftlog dev restart {node_id}{where}` starts it again",
                file=sys.stderr,
                flush=True,
            )
        known = ended
        if len(ended) == len(cluster.nodes) and not nodes.ended_on_request:
            return FAILED
    return OK


def _stop(cluster: Any) -> None:
    """Stop all nodes gracefully, in parallel; the cluster kills nodes that make no progress."""
    from raftlog.testing.progress import Stalled, wait_until

    stop_signals(cluster)
    try:
        wait_until(lambda: not any(node.running for node in cluster.nodes.values()), "all nodes end")
    except Stalled as error:
        print(f"raftlog: {error}", file=sys.stderr)
