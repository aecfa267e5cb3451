"""Refuses the settings of librdkafka that a query may not choose, since they affect the machines that run it.

They load code, run programs, read files, or send credentials to an address of the query's choice. Clients of Kafka have
had holes of each kind (CVE-2023-25194, CVE-2024-31141, CVE-2025-27817). The owner of the Spark installation may allow
single settings by name, in the environment of the driver: a query cannot set that.
"""

from __future__ import annotations

import os
import re
from typing import Final

from raftlog.base import variables

_REACHES: Final = (
    (re.compile(r"(plugin\.|ssl[._]engine|ssl\.providers).*"), "it loads code into this process"),
    (re.compile(r"sasl\.kerberos\.(kinit\.cmd|keytab|principal)"), "it is part of a command that is run"),
    (re.compile(r".*\.url|sasl\.oauthbearer\.metadata\..*"), "it says where credentials are fetched"),
    (re.compile(r".*\.(location|file|paths?|stores)"), "it names a file of the machine that runs the query"),
)


def reach_of(name: str) -> str | None:
    """Return what a setting of librdkafka affects beyond the query, None if it does not or is allowed here."""
    name = name.lower()
    if name in {each.strip().lower() for each in os.environ.get(variables.SPARK_ALLOW, "").split(",")}:
        return None
    for pattern, reach in _REACHES:
        if pattern.fullmatch(name):
            allowed = f"{variables.SPARK_ALLOW}={name} in the driver's environment allows it"
            return f"{reach}; where that is wanted, {allowed}"
    return None
