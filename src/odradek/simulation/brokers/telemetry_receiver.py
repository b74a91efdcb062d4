"""Receive clients' metrics (KIP-714) for the brokers of a simulated cluster.

In: a subscription, set by a test; pushes. Out: the pushes, unread. Must not read the metrics.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Pushed:
    """One accepted push of metrics."""

    at: float
    client_instance_id: bytes
    terminating: bool
    compression_type: int
    metrics: bytes


@dataclass(slots=True)
class TelemetryReceiver:
    """The metrics subscription of a cluster's brokers, and the pushes that they received."""

    requested_metrics: tuple[str, ...] = ("",)
    """Prefixes of metrics' names; an empty prefix means all metrics, an empty tuple none."""
    interval: float = 10.0
    """Interval between a client's pushes in seconds."""
    compression_types: tuple[int, ...] = ()
    delta: bool = True
    max_bytes: int = 1 << 20
    subscription_id: int = 1
    """Id of the subscription; if a test changes it, clients request the subscription again."""
    asked: list[bytes] = field(default_factory=list)
    """The ids of clients that requested the subscription; zeros for clients without an id yet."""
    pushed: list[Pushed] = field(default_factory=list)
    refuses: list[int] = field(default_factory=list)
    """Error codes with which the next pushes are refused, in order."""
