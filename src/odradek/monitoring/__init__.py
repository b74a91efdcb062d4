"""Metrics for other systems: Prometheus' text and collector, OpenTelemetry's instruments.

In: clients, whose `metrics()` is asked when somebody scrapes or exports. Out: the same numbers
under those systems' names (`names`). The libraries are extras, imported when they are asked for.
Must not: count or average anything, start a thread, or keep a client alive.
"""
