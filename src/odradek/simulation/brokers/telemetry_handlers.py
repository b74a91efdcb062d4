"""Handle clients' metrics (KIP-714), if a test has set a receiver for the cluster.

In: a subscription, set by a test; requests. Out: the pushed metrics, unread. Without a receiver
brokers don't support these APIs, like Kafka's without a plug-in. Must not read the metrics.
"""

from __future__ import annotations

from odradek.common.errors import kafka as errors
from odradek.protocol.message import Message
from odradek.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from odradek.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from odradek.simulation.brokers.cluster_state import BrokerState, Handler, Reply
from odradek.simulation.brokers.telemetry_receiver import Pushed, TelemetryReceiver

NO_ID = bytes(16)


def get_telemetry_subscriptions(
    broker: BrokerState, request: GetTelemetrySubscriptionsRequest, version: int, reply: Reply
) -> GetTelemetrySubscriptionsResponse:
    """Return the subscription: which metrics the client is to push, and the client's id."""
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
    broker: BrokerState, request: PushTelemetryRequest, version: int, reply: Reply
) -> PushTelemetryResponse:
    """Accept a push of metrics if it names the current subscription."""
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


def _receiver(broker: BrokerState) -> TelemetryReceiver:
    receiver = broker.cluster.telemetry
    if receiver is None:
        raise errors.InvalidRequestError("there is no receiver")
    return receiver


TELEMETRY_HANDLERS: dict[type[Message], Handler] = {
    GetTelemetrySubscriptionsRequest: get_telemetry_subscriptions,
    PushTelemetryRequest: push_telemetry,
}
