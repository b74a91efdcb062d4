"""What an error of an address usually comes from, of which kind it is, and what mends it.

In: the last error of an address, or the state of its dial that hangs. Out: one `Cause`, in words
that `explain()`, `health()` and `odradek doctor` share. Must not: look at an engine, or promise to
know: these are the usual causes, but where an error says it itself (`ExplainedError`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from odradek.common.errors import (
    AuthenticationError,
    ClusterIdMismatchError,
    ConnectionFailedError,
    ConnectionRefusedByPeerError,
    ConnectionSetupTimeoutError,
    DisconnectedError,
    DnsError,
    ExplainedError,
    MalformedMessageError,
    NotKafkaError,
    ProxyError,
    ResponseTimeoutError,
    TlsError,
    TlsPortError,
)


class DialStage(StrEnum):
    """Where on its way a connection ended, or a question."""

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

    stage: DialStage
    meaning: str
    cure: str


NO_ANSWER = Cause(
    DialStage.NETWORK,
    "nothing comes back from there: a firewall, a wrong network, or a machine that is off",
    "Have the network let this machine through to that port (firewalls, security groups, VPN), and "
    "see that the other machine is up.",
)
MUTE = Cause(
    DialStage.BROKER,
    "it accepts connections and says nothing: a broker that hangs, or a port that waits for "
    "another protocol (security.protocol)",
    "Compare security.protocol with what the broker's listener on that port speaks; if they agree, "
    "the broker hangs: its log says why.",
)
SLOW_NAME = Cause(
    DialStage.NAME,
    "the name server doesn't answer",
    "See which name servers this machine asks (/etc/resolv.conf), and that they answer.",
)
CLOSES = Cause(
    DialStage.BROKER,
    "it accepts connections and ends them before it says anything: a broker that is starting or "
    "stopping, a port that speaks another protocol (security.protocol), or a proxy without a "
    "broker behind it",
    "Wait half a minute for a broker that is starting; then compare security.protocol with what "
    "the broker's listener on that port speaks.",
)
HALF_DEAD = Cause(
    DialStage.BROKER,
    "it says which versions it speaks and ends the connection at the first question: a broker that "
    "is starting or stopping, or a proxy in its place",
    "Wait half a minute for a broker that is starting; then read its log.",
)

SAYS_NOTHING = frozenset((MUTE.meaning, CLOSES.meaning))
"""Of addresses that never said a word of Kafka's protocol."""

# In this order: the first class that fits.
CAUSES: tuple[tuple[type[BaseException], Cause], ...] = (
    (
        DnsError,
        Cause(
            DialStage.NAME,
            "the name has no address here: its spelling, DNS, or /etc/hosts",
            "Correct the name, or make it known to this machine (DNS or /etc/hosts); in containers "
            "both have to be in the same network.",
        ),
    ),
    (
        ConnectionRefusedByPeerError,
        Cause(
            DialStage.NETWORK,
            "nothing listens there: the broker isn't running, or host or port are wrong",
            "Start the broker, or correct host and port; `listeners` in the broker's "
            "server.properties says where it listens.",
        ),
    ),
    (
        TlsPortError,
        Cause(
            DialStage.TLS,
            "the port wants TLS, which security.protocol leaves out",
            TlsPortError.usual_cure,
        ),
    ),
    (
        ProxyError,
        Cause(
            DialStage.PROXY,
            "the way through the proxy (proxy.url) ended before the broker",
            "See that the proxy runs, and that it may connect to the brokers' hosts and ports.",
        ),
    ),
    (
        TlsError,
        Cause(
            DialStage.TLS,
            "TLS didn't come up: a broker that is starting or stopping, or a proxy",
            "Wait half a minute for a broker that is starting; then see that this port speaks TLS.",
        ),
    ),
    (
        AuthenticationError,
        Cause(
            DialStage.SASL,
            "the broker refuses this client's credentials",
            "Check sasl.mechanism and the credentials.",
        ),
    ),
    (
        ClusterIdMismatchError,
        Cause(
            DialStage.CLUSTER,
            "another cluster answers there; nothing was sent to it",
            "Look where that address leads; if the move is wanted, start a new client (and correct "
            "cluster.id.expected, if it is set).",
        ),
    ),
    (
        MalformedMessageError,
        Cause(
            DialStage.PROTOCOL,
            "what came from there isn't Kafka's protocol",
            "Correct host and port: another service listens there.",
        ),
    ),
    (
        ResponseTimeoutError,
        Cause(
            DialStage.BROKER,
            "it was connected and stopped answering: a hung broker or a lost network",
            "Read the broker's log (long pauses, full disks), and look at the network between.",
        ),
    ),
    (
        DisconnectedError,
        Cause(
            DialStage.BROKER,
            "a connection that was in use ended: a broker that stopped or restarted",
            "See that the broker runs: its log says why it stopped.",
        ),
    ),
    (ConnectionFailedError, CLOSES),
)


def cause(
    error: BaseException | None, state: str, *, silent: bool, unproved: bool = False
) -> Cause | None:
    """The usual cause of an address's last error, or of its dial that hangs.

    `unproved`: the latest connection that was ready ended before it answered a real request.
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
    if isinstance(error, ExplainedError) and error.sticky:  # known, not just usual
        other = type(error) is NotKafkaError
        said = f"{'another service listens there: ' if other else ''}{error.what.rstrip('.')}"
        stage = DialStage.PROTOCOL if usual is None else usual.stage
        return Cause(stage, said, error.cure)
    return usual


def usual_cause(error: BaseException) -> Cause | None:
    """What an error of this class usually comes from."""
    return next((known for kind, known in CAUSES if isinstance(error, kind)), None)


def cure_of(error: BaseException | None) -> str | None:
    """What mends an error that has ended a client, or a call."""
    if isinstance(error, ExplainedError):
        return error.cure
    usual = None if error is None else usual_cause(error)
    return None if usual is None else usual.cure
