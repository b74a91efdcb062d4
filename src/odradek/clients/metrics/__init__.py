"""`client.metrics()`: the counters and measurements of a client, under Kafka's names.

In: an engine, read from any thread. Out: a `Metrics` snapshot. `metric` defines the snapshot,
`catalogue` each metric's name, unit and meaning, `snapshot` collects the values; `client_metrics`,
`producer_metrics` and `consumer_metrics` read the engines. Must not: count anything; the engine
counts where things happen.
"""
