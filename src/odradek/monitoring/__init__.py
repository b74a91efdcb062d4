"""Export metrics to other systems: Prometheus' text and collector, OpenTelemetry's instruments.

In: clients, whose `metrics()` is called at each scrape or export. Out: the same numbers under those
systems' names (`names`). The libraries are extras, imported on first use. Must not: count or
average anything, start a thread, or keep a client alive.
"""
