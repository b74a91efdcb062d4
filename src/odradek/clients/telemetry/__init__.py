"""Push the metrics that brokers request (KIP-714).

In: a snapshot of metrics, connections. Out: PushTelemetry requests. `otlp` encodes a snapshot as
OpenTelemetry's protobuf, `metrics_push` requests subscriptions and pushes. Must not: measure
anything, connect, or delay a call other than `close`, for the last push.
"""
