"""A budget of imports: what a node loads before it is ready is most of the time and memory that a start takes."""

from __future__ import annotations

import json
import sys

import pytest

from raftlog.testing.ports import HeldPorts
from tests.kit.waits import run

FOREIGN = frozenset(
    {
        "caio",  # its compiled module only
        "cython_runtime",  # of uvloop
        "kio",
        "msgspec",
        "pysyncobj",
        "structlog",
        "uvloop",
    }
)
"""Packages from elsewhere that a node imports before it is ready. This list may only shrink."""

MAX_OF_PACKAGES = 375
"""Modules of raftlog and of packages, the same number at each start. It may only shrink: what few clusters use is
imported when it is used."""

MAX_OF_PYTHON = 198
"""Modules of the standard library: 188 in 3.11, a few more in 3.13, and some builds have a few more."""

OF_THE_MACHINE = frozenset({"sitecustomize", "usercustomize"})
"""Modules that Python imports at each start where the machine has them, as Debian's Python has the first."""

NODE = '''
import gc, json, os, signal, sys
# structlog takes these, with ten modules more, where something else has brought them: playwright brings greenlet
sys.modules["colorama"] = sys.modules["greenlet"] = None
sys.argv = ["raftlog", "server", *json.loads(sys.argv[1])]

def replace_run():
    """Main calls this when it has hidden what is to be hidden, and has imported nothing of the node."""
    from raftlog import process
    from raftlog.admin import process_facts  # a node imports it when it is ready: before that moment or after

    async def run(config, **options):
        def tell(node):
            print(json.dumps(sorted(name for name, found in sys.modules.items() if found)), flush=True)
            os.kill(os.getpid(), signal.SIGTERM)

        await plain(config, **options, ready=tell)

    plain, process.run = process.run, run

gc.disable = replace_run
from raftlog.cli import main
main()
'''


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The modules of a node that has just become ready."""
    held = HeldPorts(1)
    (port,) = held.ports
    settings = {
        "log.dirs": str(tmp_path_factory.mktemp("data")),
        "listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{port}",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:0",
        "controller.quorum.voters": f"1@127.0.0.1:{port}",
        "raftlog.admin.listener": "127.0.0.1:0",
        "node.id": "1",
    }
    arguments = [word for name, value in settings.items() for word in ("--override", f"{name}={value}")]
    ran = run([sys.executable, "-c", NODE, json.dumps(arguments)], text=True)
    held.release()
    assert ran.stdout, ran.stderr
    return [name for name in json.loads(ran.stdout) if name not in OF_THE_MACHINE]


def test_a_node_imports_few_packages_before_it_is_ready(modules: list[str]) -> None:
    """Neither aiohttp nor RE2, nor typer, rich and Hypothesis: each comes with its first use, or never."""
    ours = {"raftlog", "raftlog_chaos", "__main__"}
    known = set(sys.stdlib_module_names) | ours
    foreign = {name.partition(".")[0] for name in modules} - known
    assert {name for name in foreign if not name.startswith("_")} <= FOREIGN


def test_a_node_imports_few_modules_before_it_is_ready(modules: list[str]) -> None:
    """Each takes a third of a millisecond, and some forty KB."""
    of_python = [name for name in modules if name.partition(".")[0] in sys.stdlib_module_names]
    assert len(modules) - len(of_python) <= MAX_OF_PACKAGES
    assert len(of_python) <= MAX_OF_PYTHON


def test_a_node_imports_no_handlers_before_it_is_ready(modules: list[str]) -> None:
    """Requests do, or the slices of `warm_up`: only what the connection itself knows is there."""
    handlers = {name for name in modules if name.startswith("raftlog.broker.handlers.")}
    schemas = {name for name in modules if name.startswith("kio.schema.") and name.endswith(".request")}
    assert handlers <= {
        "raftlog.broker.handlers.api_versions",
        "raftlog.broker.handlers.fetch",
        "raftlog.broker.handlers.shared.fetch_reader",
        "raftlog.broker.handlers.shared.fetch_response",
        "raftlog.broker.handlers.produce",
        "raftlog.broker.handlers.shared",
    }, handlers
    assert not schemas


def test_paths_addresses_and_urls_are_read_without_the_modules_for_them(modules: list[str]) -> None:
    """They would be 770 KB of a node that needs none of them; typing_extensions, which msgspec takes, is 330 more."""
    assert not {"pathlib", "ipaddress", "urllib.parse", "typing_extensions"} & set(modules)


def test_email_and_importlib_metadata_are_not_needed(modules: list[str]) -> None:
    """crc32c and caio look up their own versions with them; `raftlog.base.compiled` does without."""
    assert not {"email", "importlib.metadata", "crc32c", "caio", "multiprocessing", "zipfile"} & set(modules)


def test_a_program_that_imports_raftlog_has_all_of_msgspec() -> None:
    """Its own structs may need typing_extensions. Only the process of a node does without."""
    ran = run(
        [sys.executable, "-c", "import raftlog.process, sys; sys.modules['typing_extensions']"], text=True
    )
    assert ran.returncode == 0, ran.stderr
