"""`client.metrics()`: a snapshot of what one client counts and measures.

In: the calls of a client, read from any thread. Out: `Metrics`. No request is sent for it, no lock
is taken. Must not: change anything, or wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from odradek.clients.metrics.client_metrics import add_connections, add_ours
from odradek.clients.metrics.found_metrics import FoundMetrics
from odradek.clients.metrics.metric import Metrics

if TYPE_CHECKING:
    from odradek.clients.calls.client_calls import ClientCalls
    from odradek.clients.calls.consumer_calls import ConsumerCalls
    from odradek.clients.consumer.consumer_engine import ConsumerEngine
    from odradek.clients.producer.producer_engine import ProducerEngine

TAKES = 5


def metrics(calls: ClientCalls[Any]) -> Metrics:
    """Take the snapshot."""
    for _ in range(TAKES):
        try:
            return _snapshot(calls)
        except RuntimeError:  # the client's thread changed a dictionary that is read here
            continue
    return _snapshot(calls)


def _snapshot(calls: ClientCalls[Any]) -> Metrics:
    engine = calls.engine
    client_id = engine.config["client.id"]
    found = FoundMetrics(client_id, calls.host.now())
    if hasattr(engine, "sender"):
        from odradek.clients.metrics.producer_metrics import add_producer

        add_connections(found, engine, "producer")
        add_producer(found, cast("ProducerEngine", engine))
    elif hasattr(engine, "subscription"):
        from odradek.clients.metrics.consumer_metrics import add_consumer

        add_connections(found, engine, "consumer")
        add_consumer(found, cast("ConsumerEngine", engine))
        if (work := cast("ConsumerCalls", calls).work) is not None:
            from odradek.clients.metrics.work_metrics import add_work

            add_work(found, cast("ConsumerEngine", engine), work)
    else:
        add_connections(found, engine, "admin-client")
    add_ours(found, engine)
    return Metrics(calls.kind, client_id, calls.host.wall_clock(), found.all())
