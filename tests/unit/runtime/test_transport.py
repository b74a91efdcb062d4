"""Test the options that are set on connections' sockets."""

import socket

from odradek.common.types import Address
from odradek.runtime.hosts.transport import Transport


def test_tcp_keepalive_detects_dead_peers_within_40_seconds() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        transport = Transport(1, Address("127.0.0.1", port))
        transport.open("127.0.0.1")
        assert transport.sock is not None
        with transport.sock as sock:
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            idle = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
            probes = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT)
            every = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
            assert idle + probes * every == 40


def test_tcp_nodelay_is_set_so_that_small_writes_are_not_delayed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        transport = Transport(1, Address("127.0.0.1", server.getsockname()[1]))
        transport.open("127.0.0.1")
        assert transport.sock is not None
        with transport.sock as sock:
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
