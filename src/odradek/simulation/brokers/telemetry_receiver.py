"""Receive clients' metrics (KIP-714) for the brokers of a simulated cluster.

In: a subscription, set by a test; pushes. Out: the pushes, unread. Must not read the metrics.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Pushed:
    """One accepted push."""

    at: float
    client_instance_id: bytes
    terminating: bool
    compression_type: int
    metrics: bytes


@dataclass(slots=True)
class TelemetryReceiver:
    """A subscription of brokers to metrics, and the pushes that they received."""

    requested_metrics: tuple[str, ...] = ("",)
    """Prefixes of names; an empty prefix means all, an empty tuple no metrics."""
    interval: float = 10.0
    """Interval of pushes in seconds."""
    compression_types: tuple[int, ...] = ()
    delta: bool = True
    max_bytes: int = 1 << 20
    subscription_id: int = 1
    """A different number makes clients request the subscription again."""
    asked: list[bytes] = field(default_factory=list)
    """The ids of clients that requested the subscription; zeros for those without an id."""
    pushed: list[Pushed] = field(default_factory=list)
    refuses: list[int] = field(default_factory=list)
    """Error codes of the responses to the next pushes."""
