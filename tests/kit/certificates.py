"""Certificates for tests, with the names and times that a test needs: an authority, and what it issues, as files.

They are trustme's, so that raftlog is not only tried with what `raftlog.testing.certificates` makes.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import trustme

from raftlog.testing.certificates import store_settings

HOST = "127.0.0.1"


class Authority:
    """A certificate authority made for a test; only clients that are given its certificate trust it."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._ca = trustme.CA()
        self._folder = folder
        self.path = folder / f"{name}.pem"
        self._ca.cert_pem.write_to_path(str(self.path))

    def issue(self, name: str, *hosts: str, **names: Any) -> Path:
        """Write a key and its certificate chain as one PEM file, for hosts or a user; `names` as trustme has them."""
        path = self._folder / f"{name}.pem"
        self.renew(path, *hosts, **names)
        return path

    def renew(self, path: Path, *hosts: str, **names: Any) -> None:
        """Replace a certificate file atomically, as a renewal does."""
        made = self._ca.issue_cert(*(hosts or (HOST, "localhost")), **names)
        fresh = path.with_suffix(".new")
        made.private_key_and_cert_chain_pem.write_to_path(str(fresh))
        fresh.replace(path)

    def settings(self, keystore: Path, **more: str) -> dict[str, str]:
        """Return a listener's settings with that keystore, and this authority believed; _ stands for ."""
        return store_settings(keystore, self.path) | {
            f"ssl.{name.replace('_', '.')}": value for name, value in more.items()
        }

    def client(self, certificate: Path | None = None, **attributes: Any) -> ssl.SSLContext:
        """Return a client's context that believes this authority, and may show a certificate."""
        context = ssl.create_default_context(cafile=str(self.path))
        if certificate is not None:
            context.load_cert_chain(certificate)
        for name, value in attributes.items():
            setattr(context, name, value)
        return context
