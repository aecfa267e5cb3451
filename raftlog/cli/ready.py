"""`python -m raftlog.cli.ready`: ask the node on this machine whether it is ready. For containers' health checks.

Loads nothing but the standard library, since it runs every few seconds beside the node. It knows the address as the
node does, from RAFTLOG_ADMIN_LISTENER.
"""

from __future__ import annotations

import http.client
import os
import sys

from raftlog.cli import exits

DEFAULT = "127.0.0.1:9644"
TIMEOUT_S = 2.0
MOST_BYTES = 4096


def main() -> int:
    """Print what the node says; return 0 if it is ready, UNHEALTHY if not, UNREACHABLE if nobody answers."""
    host, _, port = os.environ.get("RAFTLOG_ADMIN_LISTENER", DEFAULT).rpartition(":")
    if host in ("", "0.0.0.0", "[::]"):  # noqa: S104 - compared with, never bound to
        host = "127.0.0.1"
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/v1/ready")
        answer = connection.getresponse()
        print(answer.read(MOST_BYTES).decode(errors="replace"))
    except (OSError, http.client.HTTPException) as error:
        print(f"no answer at {host}:{port}: {error}", file=sys.stderr)
        return exits.UNREACHABLE
    finally:
        connection.close()
    return exits.OK if answer.status == http.client.OK else exits.UNHEALTHY


if __name__ == "__main__":
    sys.exit(main())
