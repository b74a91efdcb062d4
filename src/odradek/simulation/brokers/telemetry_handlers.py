"""What simulated brokers do about clients' metrics (KIP-714), once they have a receiver.

In: a subscription, set by a test; requests. Out: what was pushed, as it came. Without a receiver
brokers don't offer these APIs, as Kafka's don't without its plug-in. Must not: read the metrics.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from odradek.common.errors import kafka as errors
from odradek.protocol.message import Message
from odradek.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from odradek.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from odradek.simulation.brokers.admin_state import AdminHandler, Reply

if TYPE_CHECKING:
    from odradek.simulation.brokers.broker import SimulatedBroker

NO_ID = bytes(16)


@dataclass(slots=True)
class Pushed:
    """One push that was taken."""

    at: float
    client_instance_id: bytes
    terminating: bool
    compression_type: int
    metrics: bytes


@dataclass(slots=True)
class TelemetryReceiver:
    """What brokers subscribe to, and what they were pushed."""

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
    """The ids of clients that asked what is wanted, zeros for those that had none."""
    pushed: list[Pushed] = field(default_factory=list)
    refuses: list[int] = field(default_factory=list)
    """Codes that the next pushes are answered with."""


def get_telemetry_subscriptions(
    broker: SimulatedBroker, request: GetTelemetrySubscriptionsRequest, version: int, reply: Reply
) -> GetTelemetrySubscriptionsResponse:
    """What is wanted of a client, and its id."""
    receiver = _receiver(broker)
    receiver.asked.append(request.client_instance_id)
    known = request.client_instance_id
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=len(receiver.asked).to_bytes(16) if known == NO_ID else known,
        subscription_id=receiver.subscription_id,
        accepted_compression_types=list(receiver.compression_types),
        push_interval_ms=round(receiver.interval * 1000),
        telemetry_max_bytes=receiver.max_bytes,
        delta_temporality=receiver.delta,
        requested_metrics=list(receiver.requested_metrics),
    )


def push_telemetry(
    broker: SimulatedBroker, request: PushTelemetryRequest, version: int, reply: Reply
) -> PushTelemetryResponse:
    """Take a push, if it is of the subscription of now."""
    receiver = _receiver(broker)
    if receiver.refuses:
        return PushTelemetryResponse(error_code=receiver.refuses.pop(0))
    if request.subscription_id != receiver.subscription_id:
        return PushTelemetryResponse(error_code=errors.UnknownSubscriptionIdError.code or 0)
    if len(request.metrics) > receiver.max_bytes:
        return PushTelemetryResponse(error_code=errors.TelemetryTooLargeError.code or 0)
    kind, data = request.compression_type, bytes(request.metrics)
    which, last = request.client_instance_id, request.terminating
    receiver.pushed.append(Pushed(broker.time.now, which, last, kind, data))
    return PushTelemetryResponse()


def _receiver(broker: SimulatedBroker) -> TelemetryReceiver:
    found: Any = broker.cluster.telemetry
    if found is None:
        raise errors.InvalidRequestError("there is no receiver")
    receiver: TelemetryReceiver = found
    return receiver


TELEMETRY_HANDLERS: dict[type[Message], AdminHandler] = {
    GetTelemetrySubscriptionsRequest: get_telemetry_subscriptions,
    PushTelemetryRequest: push_telemetry,
}
