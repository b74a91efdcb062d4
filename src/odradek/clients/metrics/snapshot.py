"""`client.metrics()`: a snapshot of the counters and measurements of one client.

In: a client's engine and its I/O host, read from any thread. Out: `Metrics`. No request is sent for
the snapshot, and no lock is taken. Must not: change anything, or wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from odradek.clients.client_engine import ClientEngine
from odradek.clients.metrics.client_metrics import add_connections, add_ours
from odradek.clients.metrics.metric import Metrics
from odradek.clients.metrics.metric_values import MetricValues
from odradek.network.host import Host

if TYPE_CHECKING:
    from odradek.clients.consumer.consumer_engine import ConsumerEngine
    from odradek.clients.producer.producer_engine import ProducerEngine
    from odradek.clients.workers.work_totals import WorkTotals

TAKES = 5


def metrics(kind: str, engine: ClientEngine, host: Host, work: WorkTotals | None = None) -> Metrics:
    """Return the snapshot; `kind` is the client's class, `work` counts the work of its workers."""
    for _ in range(TAKES):
        try:
            return _snapshot(kind, engine, host, work)
        except RuntimeError:  # the client's thread changed a dictionary that is read here
            continue
    return _snapshot(kind, engine, host, work)


def _snapshot(kind: str, engine: ClientEngine, host: Host, work: WorkTotals | None) -> Metrics:
    client_id = engine.config["client.id"]
    found = MetricValues(client_id, host.now())
    if hasattr(engine, "sender"):
        from odradek.clients.metrics.producer_metrics import add_producer

        add_connections(found, engine, "producer")
        add_producer(found, cast("ProducerEngine", engine))
    elif hasattr(engine, "subscription"):
        from odradek.clients.metrics.consumer_metrics import add_consumer

        add_connections(found, engine, "consumer")
        add_consumer(found, cast("ConsumerEngine", engine))
        if work is not None:
            from odradek.clients.metrics.work_metrics import add_work

            add_work(found, cast("ConsumerEngine", engine), work)
    else:
        add_connections(found, engine, "admin-client")
    add_ours(found, engine)
    return Metrics(kind, client_id, host.wall_clock(), found.all())
