"""A caller of the admin API, and its authorization: a token's role, or a user's ACLs."""

from __future__ import annotations

import math
from typing import Final, Literal, NamedTuple

from raftlog.security.acls import ANONYMOUS

Role = Literal["anyone", "reader", "operator"]
"""The roles that may call it: anyone, without a token; readers; operators, for changes."""


class Caller(NamedTuple):
    """The caller. A user has a `principal` with ACLs; a token has its role."""

    name: str
    role: Role
    principal: str = ""
    """As `User:name`, the same as on Kafka's listeners; "" of a token."""
    host: str = ""
    """The address from which the user calls."""
    expires_at: float = math.inf
    """The time at which an identity provider's token expires, in seconds of the event loop's clock."""

    @property
    def asked_by(self) -> str:
        """The name that the history of the metadata has for the caller; "" for a caller without a name."""
        if self.principal:
            return "" if self.principal == ANONYMOUS else self.principal
        return "" if self.name == NOBODY.name else f"token {self.name}"


NOBODY: Final = Caller("anonymous", "operator")
"""The caller on this machine, where neither tokens nor ACLs are configured."""
