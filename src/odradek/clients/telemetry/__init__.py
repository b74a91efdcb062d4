"""KIP-714: the metrics that brokers ask for, pushed to them.

`otlp` writes a snapshot as OpenTelemetry's protobuf, `metrics_push` asks what is wanted and pushes
it. Must not: measure anything, dial, or keep a call waiting but the last push at `close`.
"""
