"""Metrics, health and explanations of a client, and their export to other systems.

    from odradek.monitoring import OpenTelemetryMetrics, PrometheusCollector, prometheus_text

Contains the types that `metrics()`, `health()` and `explain()` of a client return, and the
exporters to Prometheus and OpenTelemetry. These two read `metrics()` when the other system scrapes
or exports. Their libraries are extras, which are imported when an exporter is created. Must not:
count or average anything, start a thread, or keep a client alive.
"""

from __future__ import annotations

from odradek.common.public_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
