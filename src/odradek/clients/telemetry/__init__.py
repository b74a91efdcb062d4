"""Push the metrics that brokers ask for (KIP-714).

`otlp` encodes a snapshot as OpenTelemetry's protobuf, `metrics_push` requests subscriptions and
pushes. Must not: measure anything, connect, or delay a call other than `close`, for the last push.
"""
