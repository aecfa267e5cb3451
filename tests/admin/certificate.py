"""A certificate for 127.0.0.1, made with openssl."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="makes its certificate with openssl"
)


class Certificate(NamedTuple):
    """Its address and its key."""

    path: Path
    key: Path


def make_certificate(folder: Path) -> Certificate:
    """Create a certificate that is valid for two days."""
    made = Certificate(folder / "certificate.pem", folder / "key.pem")
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    files = ["-keyout", str(made.key), "-out", str(made.path)]
    subprocess.run([*make, "-days", "2", *names, *files], check=True, capture_output=True)
    return made
