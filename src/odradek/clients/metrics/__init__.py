"""`client.metrics()`: what a client counts and measures, under Kafka's names.

`metric` has the snapshot's shape, `catalogue` each name with its unit and meaning, `snapshot` puts
one together; `client_metrics`, `producer_metrics` and `consumer_metrics` read the engines. Must
not: count anything; the engine's rooms do, where it happens.
"""
