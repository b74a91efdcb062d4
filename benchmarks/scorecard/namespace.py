"""Move this process to its own network namespace: loopback only, with separate counters.

Out: the number of all connection attempts, including refused and dropped ones, which no listener
sees. It needs no permissions where users may create namespaces; elsewhere cells run without one and
don't count such attempts. Must be called while the process has one thread.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path

CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, SIOCSIFADDR = 0x8913, 0x8914, 0x8916
IFF_UP = 1
SECOND_ADDRESS = "10.77.0.1"
"""Resolvers that ask for "addresses as configured" find no IPv4 address with only 127.0.0.1."""


def enter() -> bool:
    """Move this process into a network namespace of its own; return False if not permitted."""
    if not hasattr(ctypes, "CDLL") or not Path("/proc/net/snmp").is_file():
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.getuid(), os.getgid()
    kinds = CLONE_NEWNET if uid == 0 else CLONE_NEWNET | CLONE_NEWUSER
    if libc.unshare(kinds) != 0:
        return False
    if uid != 0:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        _set_address(sock, b"lo:1", SECOND_ADDRESS)
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(sock, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))
    return True


def _set_address(sock: socket.socket, interface: bytes, address: str) -> None:
    wanted = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(address))
    fcntl.ioctl(sock, SIOCSIFADDR, struct.pack("16s16s", interface, wanted))


def connection_attempts() -> int:
    """Return the number of TCP connection attempts in this namespace."""
    lines = Path("/proc/self/net/snmp").read_text().splitlines()
    names, values = (line.split() for line in lines if line.startswith("Tcp:"))
    return int(values[names.index("ActiveOpens")])
