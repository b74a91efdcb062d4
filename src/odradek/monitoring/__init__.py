"""Metrics, health and explanations of a client, and their export to other systems.

    from odradek.monitoring import OpenTelemetryMetrics, PrometheusCollector, prometheus_text

Contains the types that `metrics()`, `health()` and `explain()` of a client return, and the
exporters to Prometheus and OpenTelemetry. An exporter reads `metrics()` when the other system
scrapes or exports; it starts no thread and doesn't keep a client alive. The libraries that it needs
are optional dependencies (extras), imported when an exporter is created.
"""

from __future__ import annotations

from odradek.common.public_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
