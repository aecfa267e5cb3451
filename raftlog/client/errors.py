"""Errors of a client that no broker sent: what a broker sends is a `base.errors.KafkaError`."""

from __future__ import annotations

from typing import Final

UNPROVEN: Final = (
    "its certificate is not trusted: is it issued by the authority in ssl.ca.location, and for this host?"
)


class Unreachable(Exception):
    """No broker answered in time; the message is the last reason."""


class NotConnected(Unreachable):
    """No connection was made in time, so the request was certainly not carried out."""


class Refused(Exception):
    """A login, a certificate or the lack of security settings was refused, which a retry does not fix."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address}: {reason}")
        self.address = address
        self.reason = reason
