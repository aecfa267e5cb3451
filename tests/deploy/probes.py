"""The probes of a container, asked as the kubelet asks: over HTTP, without a token, and any certificate will do."""

from __future__ import annotations

import ssl
import time
import urllib.request
from collections.abc import Mapping
from typing import Any


class Probe:
    """One probe of a container's spec, at the pod's address. The API server has filled in its defaults."""

    def __init__(self, name: str, container: Mapping[str, Any], address: str) -> None:
        self.spec = container[f"{name}Probe"]
        asked = self.spec["httpGet"]
        ports = {each["name"]: each["containerPort"] for each in container["ports"]}
        port = ports.get(asked["port"], asked["port"])
        self._url = f"{asked['scheme'].lower()}://{address}:{port}{asked['path']}"
        self._next_at = time.monotonic() + self.spec.get("initialDelaySeconds", 0)
        self._last, self._streak = False, 0
        self.failures = 0

    def ask_if_due(self) -> bool | None:
        """Return whether the probe has succeeded or failed as often in a row as its thresholds say, otherwise None."""
        now = time.monotonic()
        if now < self._next_at:
            return None
        self._next_at = now + self.spec["periodSeconds"]
        succeeded = self._ask()
        self._streak = self._streak + 1 if succeeded == self._last else 1
        self._last = succeeded
        self.failures += not succeeded
        threshold = self.spec["successThreshold" if succeeded else "failureThreshold"]
        return succeeded if self._streak >= threshold else None

    def _ask(self) -> bool:
        context = ssl._create_unverified_context()
        try:
            with urllib.request.urlopen(
                self._url, timeout=self.spec["timeoutSeconds"], context=context
            ) as answer:
                return bool(200 <= answer.status < 400)
        except OSError:
            return False
