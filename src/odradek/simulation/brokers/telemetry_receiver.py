"""The receiver of clients' metrics (KIP-714) that the brokers of a simulated cluster may have.

In: a subscription, set by a test; pushes. Out: the pushes, as they came. Must not: read the
metrics.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Pushed:
    """One push that was accepted."""

    at: float
    client_instance_id: bytes
    terminating: bool
    compression_type: int
    metrics: bytes


@dataclass(slots=True)
class TelemetryReceiver:
    """A subscription of brokers to metrics, and the pushes that they got."""

    requested_metrics: tuple[str, ...] = ("",)
    """Prefixes of names; an empty one for all, none for nothing."""
    interval: float = 10.0
    """Seconds."""
    compression_types: tuple[int, ...] = ()
    delta: bool = True
    max_bytes: int = 1 << 20
    subscription_id: int = 1
    """Another number makes clients ask again."""
    asked: list[bytes] = field(default_factory=list)
    """The ids of clients that asked for the subscription, zeros for those without an id."""
    pushed: list[Pushed] = field(default_factory=list)
    refuses: list[int] = field(default_factory=list)
    """Error codes of the answers to the next pushes."""
