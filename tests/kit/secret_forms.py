"""The ways in which a secret that must not come out could come out."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote


def forms(secret: str) -> set[str]:
    """Return the ways in which a secret could be written down."""
    raw = secret.encode()
    return {
        secret,
        raw.hex(),
        base64.b64encode(raw).decode().rstrip("="),
        base64.urlsafe_b64encode(raw).decode().rstrip("="),
        quote(secret, safe=""),
        json.dumps(secret)[1:-1],
    }
