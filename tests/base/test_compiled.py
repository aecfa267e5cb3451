"""Claims about compiled modules that are loaded without their packages."""

from __future__ import annotations

import subprocess
import sys

import pytest

from raftlog.base.compiled import crc32c, load_compiled


def test_the_checksum_is_crc_32c() -> None:
    """RFC 3720, B.4: the check value, and going on from the bytes before."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"456789", crc32c(b"123")) == 0xE3069283
    assert crc32c(memoryview(bytes(32))) == 0x8A9136AA


@pytest.mark.parametrize("order", ["ours, theirs", "theirs, ours"])
def test_the_whole_library_can_be_imported_beside_it(order: str) -> None:
    """A program that uses raftlog may use crc32c, too, before or after."""
    imports = {
        "ours": "from raftlog.base.compiled import crc32c as ours",
        "theirs": "from crc32c import crc32c as theirs",
    }
    lines = [*(imports[each] for each in order.split(", ")), "assert ours(b'x') == theirs(b'x')"]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)


@pytest.mark.parametrize(
    ("package", "name"), [("no_such_package", "x"), ("crc32c", "no_such_module"), ("errno", "x")]
)
def test_what_is_not_there_is_an_import_error(package: str, name: str) -> None:
    """A platform without it, as caio's linux_aio elsewhere than on Linux."""
    with pytest.raises(ImportError, match=name):
        load_compiled(package, name)
