"""Errors of a client that no broker sent: what a broker sends is a `base.errors.KafkaError`."""

from __future__ import annotations

from typing import Final

UNPROVEN: Final = (
    "its certificate is not trusted: is it issued by the authority in ssl.ca.location, and for this host?"
)


class Unreachable(Exception):
    """No broker answered in time; the message is the last reason.

    `broker`: the broker that had to answer, None if any would do. Then the message names it and its address, and with
    `duty` why it was asked: "leads orders-2".
    """

    def __init__(self, reason: str, *, broker: int | None = None, address: str = "", duty: str = "") -> None:
        self.reason = reason
        self.broker = broker
        self.address = address
        self.duty = duty
        where = f" at {address}" if address else ""
        which = f", which {duty}," if duty else ""
        super().__init__(
            reason if broker is None else f"broker {broker}{which} does not answer{where} ({reason})"
        )

    def with_duty(self, duty: str) -> Unreachable:
        """Return this error with the reason why this broker was asked."""
        return type(self)(self.reason, broker=self.broker, address=self.address, duty=duty)


class NotConnected(Unreachable):
    """No connection was made in time, so the request was certainly not carried out."""


class Refused(Exception):
    """A login, a certificate or the lack of security settings was refused, which a retry does not fix."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address}: {reason}")
        self.address = address
        self.reason = reason
