"""Find the usual cause of an address's error, the stage in which it occurs, and the cure.

In: the last error of an address, or the state of its pending connection attempt. Out: one `Cause`,
whose texts `explain()`, `health()` and `odradek doctor` share. Must not: read an engine, or claim
certainty: these are the usual causes, unless an error states its own (`ExplainedError`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from odradek.common.errors import (
    AuthenticationError,
    BrokerError,
    ClusterIdMismatchError,
    ConnectionFailedError,
    ConnectionRefusedByPeerError,
    ConnectionSetupTimeoutError,
    DisconnectedError,
    DnsError,
    ExplainedError,
    MalformedMessageError,
    NoMemoryError,
    NotKafkaError,
    ProxyError,
    ResponseTimeoutError,
    TlsError,
    TlsPortError,
)


class ConnectionStage(StrEnum):
    """Stage in which a connection attempt or a request ended."""

    NAME = "name"
    NETWORK = "network"
    PROXY = "proxy"
    TLS = "tls"
    SASL = "sasl"
    PROTOCOL = "protocol"
    BROKER = "broker"
    CLUSTER = "cluster"


class Cause(NamedTuple):
    """The usual reason for an error."""

    stage: ConnectionStage
    meaning: str
    cure: str


NO_ANSWER = Cause(
    ConnectionStage.NETWORK,
    "connection attempts get no reply: a firewall drops them, the network is wrong, or the host is "
    "down",
    "Allow this machine to connect to that port (firewall, security group, VPN), and check that "
    "the host is up.",
)
MUTE = Cause(
    ConnectionStage.BROKER,
    "it accepts connections but never answers: the broker hangs, or the port expects another "
    "protocol (security.protocol)",
    "Compare security.protocol with the protocol of the broker's listener on that port. If they "
    "match, the broker hangs: read its log.",
)
SLOW_NAME = Cause(
    ConnectionStage.NAME,
    "the name server doesn't answer",
    "Check the name servers in /etc/resolv.conf, and that they answer.",
)
CLOSES = Cause(
    ConnectionStage.BROKER,
    "it closes connections before it answers: the broker is starting or stopping, the port speaks "
    "another protocol (security.protocol), or a proxy can't reach its broker",
    "If the broker is starting, wait half a minute; then compare security.protocol with the "
    "protocol of the broker's listener on that port.",
)
HALF_DEAD = Cause(
    ConnectionStage.BROKER,
    "it answers ApiVersions and closes the connection at the first request after that: the broker "
    "is starting or stopping, or a proxy answers in its place",
    "If the broker is starting, wait half a minute; then read its log.",
)

SAYS_NOTHING = frozenset((MUTE.meaning, CLOSES.meaning))
"""Causes of errors at addresses that never sent a byte of Kafka's protocol."""

# Ordered: the first class that matches is used.
CAUSES: tuple[tuple[type[BaseException], Cause], ...] = (
    (
        DnsError,
        Cause(
            ConnectionStage.NAME,
            "the name doesn't resolve on this machine: it is misspelled, or missing in DNS and "
            "/etc/hosts",
            "Correct the name, or add it to DNS or /etc/hosts; containers must be on the same "
            "network.",
        ),
    ),
    (
        NoMemoryError,
        Cause(
            ConnectionStage.BROKER,
            "this process has no memory for its response",
            "Allow the process more memory, or lower fetch.max.bytes and "
            "max.partition.fetch.bytes.",
        ),
    ),
    (
        ConnectionRefusedByPeerError,
        Cause(
            ConnectionStage.NETWORK,
            "nothing listens there: the broker isn't running, or the host or port is wrong",
            "Start the broker, or correct host and port (see `listeners` in the broker's "
            "server.properties).",
        ),
    ),
    (
        TlsPortError,
        Cause(
            ConnectionStage.TLS,
            "the port requires TLS, and security.protocol doesn't include it",
            TlsPortError.usual_cure,
        ),
    ),
    (
        ProxyError,
        Cause(
            ConnectionStage.PROXY,
            "the proxy (proxy.url) didn't reach the broker",
            "Check that the proxy runs, and that it may connect to the brokers' hosts and ports.",
        ),
    ),
    (
        TlsError,
        Cause(
            ConnectionStage.TLS,
            "the TLS handshake failed: the broker is starting or stopping, or it is a proxy",
            "If the broker is starting, wait half a minute; then check that this port speaks TLS.",
        ),
    ),
    (
        AuthenticationError,
        Cause(
            ConnectionStage.SASL,
            "the broker refuses this client's credentials",
            "Check sasl.mechanism and the credentials.",
        ),
    ),
    (
        ClusterIdMismatchError,
        Cause(
            ConnectionStage.CLUSTER,
            "a different cluster answers there; nothing was sent to it",
            "Check where that address leads. If the cluster was replaced on purpose, start a new "
            "client (and change cluster.id.expected, if it is set).",
        ),
    ),
    (
        MalformedMessageError,
        Cause(
            ConnectionStage.PROTOCOL,
            "it doesn't answer in Kafka's protocol",
            "Correct host and port: another service listens there.",
        ),
    ),
    (
        ResponseTimeoutError,
        Cause(
            ConnectionStage.BROKER,
            "it was connected and stopped answering: the broker hangs, or the network failed",
            "Read the broker's log (long pauses, full disks), and check the network path to it.",
        ),
    ),
    (
        DisconnectedError,
        Cause(
            ConnectionStage.BROKER,
            "a connection in use was closed: the broker stopped or restarted",
            "Check that the broker runs; its log says why it stopped.",
        ),
    ),
    (ConnectionFailedError, CLOSES),
)


def cause(
    error: BaseException | None, state: str, *, silent: bool, unproved: bool = False
) -> Cause | None:
    """Return the usual cause of an address's last error, or of its pending attempt.

    `unproved` means that the latest ready connection ended before it answered a real request.
    """
    if silent:
        return {"resolving": SLOW_NAME, "connecting": NO_ANSWER}.get(state, MUTE)
    if error is None or state == "ready":
        return None
    if isinstance(error, ConnectionSetupTimeoutError):
        for stage, found in (("resolving", SLOW_NAME), ("connecting", NO_ANSWER)):
            if f"({stage})" in str(error):
                return found
        return MUTE
    if unproved and type(error) is DisconnectedError:
        return HALF_DEAD
    usual = usual_cause(error)
    if isinstance(error, ExplainedError) and error.sticky:  # the error itself names its cause
        other = type(error) is NotKafkaError
        said = f"{'another service listens there: ' if other else ''}{error.what.rstrip('.')}"
        stage = ConnectionStage.PROTOCOL if usual is None else usual.stage
        return Cause(stage, said, error.cure)
    return usual


def usual_cause(error: BaseException) -> Cause | None:
    """Return the usual cause of an error of this class."""
    return next((known for kind, known in CAUSES if isinstance(error, kind)), None)


def cure_of(error: BaseException | None) -> str | None:
    """Return the cure of an error that has ended a client or a call."""
    if isinstance(error, ExplainedError) or (isinstance(error, BrokerError) and error.cure):
        return error.cure
    usual = None if error is None else usual_cause(error)
    return None if usual is None else usual.cure
