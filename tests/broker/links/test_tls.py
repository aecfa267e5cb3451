"""raftlog.broker.links.tls: certificates are renewed from files, whatever once stood in the way."""

from __future__ import annotations

import errno
import os
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from raftlog.base.config import load_config
from raftlog.base.config.tls import ListenerTls
from raftlog.broker.links.tls import ListenerContexts, Material, TlsUnusable, make_client_context
from tests.kit.certificates import HOST, Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


class Library:
    """Makes contexts, or fails as a library does."""

    def __init__(self) -> None:
        self.failure: Exception | None = None

    def make(self, tls: ListenerTls, material: Material) -> ssl.SSLContext:
        if self.failure is not None:
            raise self.failure
        return make_client_context(tls, material)


def contexts_of(authority: Authority, path: Path, library: Library) -> ListenerContexts:
    listeners = {"listeners": f"SSL://{HOST}:0,CONTROLLER://{HOST}:9093"}
    return ListenerContexts(load_config(listeners | authority.settings(path)).tls["SSL"], library.make)


def failed(renew: Callable[[], object]) -> str:
    with pytest.raises(TlsUnusable) as told:
        renew()
    return str(told.value)


FAILURES = [
    OSError(errno.EMFILE, os.strerror(errno.EMFILE)),
    ssl.SSLError(1, "[ASN1] too long"),
    ValueError("no such curve"),
    RuntimeError("unsupported algorithm"),
]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda each: type(each).__name__)
def test_any_error_of_a_file_is_logged_once_and_tried_again(authority: Authority, failure: Exception) -> None:
    """A node that is out of descriptors takes the new certificate as soon as it has some again."""
    path, library = authority.issue("server"), Library()
    contexts = contexts_of(authority, path, library)
    before = contexts.load()
    assert contexts.renew() is None, "the files are the same"
    authority.renew(path)
    library.failure = failure
    assert type(failure).__name__ in failed(contexts.renew)
    assert contexts.renew() is None, "it was told"
    assert contexts.newest is before
    library.failure = None
    assert contexts.renew() is contexts.newest is not before
    assert contexts.renew() is None


def test_another_reason_and_other_files_are_logged_anew(authority: Authority) -> None:
    """An operator that replaced a bad file by another bad file sees both."""
    path, library = authority.issue("server"), Library()
    contexts = contexts_of(authority, path, library)
    contexts.load()
    authority.renew(path)
    library.failure = RuntimeError("one")
    failed(contexts.renew)
    library.failure = RuntimeError("two")
    assert "two" in failed(contexts.renew)
    assert contexts.renew() is None
    path.write_bytes(b"")
    failed(contexts.renew)
