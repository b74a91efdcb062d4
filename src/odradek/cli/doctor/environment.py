"""Facts about the machine of `odradek doctor`, and about certificates.

In: a configuration, addresses. Out: whether this is a container; when an address's certificate
expires, from a separate handshake with the clients' TLS context. Must not: send anything but TLS,
or raise errors: unknown values are None.
"""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from odradek.common.config import Config
from odradek.common.errors import KafkaError
from odradek.common.types import Address
from odradek.runtime.tls.tls_context import tls_source

MARKS = ("/.dockerenv", "/run/.containerenv")
"""Files that Docker and Podman put into their containers."""
VARIABLES = ("container", "KUBERNETES_SERVICE_HOST")
"""Environment variables that Podman, systemd and Kubernetes set."""
HANDSHAKE = 3.0
"""Seconds for a handshake with an address that has just answered."""


@dataclass(frozen=True, slots=True)
class DoctorEnvironment:
    """The machine or container that the command runs in."""

    container: bool = False
    certificates: Mapping[str, float] | None = None
    """Expiry times of certificates by address, in seconds since the epoch; None without TLS."""
    now: float = 0.0
    """Seconds since the epoch."""
    at: float = 0.0
    """The time `now` on the monotonic clock of the clients' engines, in seconds."""

    @property
    def here(self) -> str:
        """Name of this machine in a sentence."""
        return "this container" if self.container else "this machine"


def in_container() -> bool:
    """Return whether this process seems to run in a container."""
    marked = any(Path(mark).exists() for mark in MARKS)
    return marked or any(os.environ.get(name) for name in VARIABLES)


def certificates(config: Config, addresses: list[str]) -> dict[str, float] | None:
    """Return the expiry times of the addresses' certificates that this client trusts."""
    source = tls_source(config)
    if source is None or config["proxy.url"] is not None:
        return None
    context, found = source(), {}
    for address in addresses:
        host, _, port = address.rpartition(":")
        ends = _end_of_certificate(context, Address(host.strip("[]"), int(port)))
        if ends is not None:
            found[address] = ends
    return found


def _end_of_certificate(context: ssl.SSLContext, address: Address) -> float | None:
    try:
        with (
            socket.create_connection(address, HANDSHAKE) as plain,
            context.wrap_socket(plain, server_hostname=address.host) as secured,
        ):
            shown = secured.getpeercert()
    except (OSError, ValueError, KafkaError):
        return None
    ends = (shown or {}).get("notAfter")  # no certificate is shown without verification
    return ssl.cert_time_to_seconds(ends) if isinstance(ends, str) else None


def look_around(config: Config, addresses: list[str]) -> DoctorEnvironment:
    """Return facts about this machine; to be called after the addresses have answered."""
    return DoctorEnvironment(
        in_container(), certificates(config, addresses), time.time(), time.monotonic()
    )
