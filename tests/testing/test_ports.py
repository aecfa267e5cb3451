"""Claims about ports held for a cluster."""

from __future__ import annotations

import socket

from raftlog.testing.ports import LOOPBACK, HeldPorts


def test_held_ports_are_listened_on_by_a_node_and_by_no_one_else():
    """The holder binds without listening, so a server with SO_REUSEADDR may still listen."""
    held = HeldPorts(3)
    try:
        assert len(set(held.ports)) == 3
        node = (LOOPBACK, held.ports[0])
        with socket.create_server(node) as server, socket.create_connection(node):
            assert server.accept()
        other = HeldPorts(3)
        assert not set(held.ports) & set(other.ports)
        other.release()
    finally:
        held.release()


def test_a_port_without_a_listener_refuses():
    """A held port does not listen: a dead node must look dead."""
    held = HeldPorts(1)
    try:
        with socket.socket() as client:
            assert client.connect_ex((LOOPBACK, held.ports[0])) != 0
    finally:
        held.release()
