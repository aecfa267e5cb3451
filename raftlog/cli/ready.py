"""`python -m raftlog.cli.ready`: ask the node on this machine whether it is ready. For containers' health checks.

Loads only the standard library, since it runs every few seconds beside the node. Like the node, it takes the address
from RAFTLOG_ADMIN_LISTENER, and TLS from RAFTLOG_ADMIN_SSL_CERTIFICATE.
"""

from __future__ import annotations

import http.client
import os
import sys

from raftlog.cli import exits

DEFAULT = "127.0.0.1:9644"
TIMEOUT_S = 2.0
MAX_BYTES = 4096


def main() -> int:
    """Print the node's response; return 0 if it is ready, UNHEALTHY if not, UNREACHABLE without a response."""
    host, _, port = os.environ.get("RAFTLOG_ADMIN_LISTENER", DEFAULT).rpartition(":")
    if host in ("", "0.0.0.0", "[::]"):  # noqa: S104 - compared with, never bound to
        host = "127.0.0.1"
    if not port.isdecimal():
        print("RAFTLOG_ADMIN_LISTENER is not host:port, so the node cannot be asked", file=sys.stderr)
        return exits.UNREACHABLE
    connection = _connection(host.strip("[]"), int(port))
    try:
        connection.request("GET", "/v1/ready")
        answer = connection.getresponse()
        print(answer.read(MAX_BYTES).decode(errors="replace"))
    except (OSError, http.client.HTTPException) as error:
        print(f"no answer at {host}:{port}: {error}", file=sys.stderr)
        return exits.UNREACHABLE
    finally:
        connection.close()
    return exits.OK if answer.status == http.client.OK else exits.UNHEALTHY


def _connection(host: str, port: int) -> http.client.HTTPConnection:
    if not os.environ.get("RAFTLOG_ADMIN_SSL_CERTIFICATE"):
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # this machine asks itself, and the certificate names another's address
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)


if __name__ == "__main__":
    sys.exit(main())
