"""Prepare everything that a first record would wait for: `producer.warm()`.

In: names of topics. Out: their metadata, a connection to each leader of their partitions, and a
producer id if necessary. Partitions without a leader are left out. Must not: send a record, or keep
an idle connection open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from odradek.common.errors import ClientClosedError
from odradek.common.topic_names import check_topic
from odradek.common.types import Address
from odradek.network.flow import START, Completion, Flow, Wait

if TYPE_CHECKING:
    from odradek.clients.producer.producer_engine import ProducerEngine


def warm(engine: ProducerEngine, names: Sequence[str], deadline: float) -> Flow[None]:
    """Prepare topics; raise for a missing topic, or at the deadline for an unreachable leader."""
    yield START
    for name in names:
        check_topic(name)
    engine.metadata.want(names)  # one metadata request for all topics
    leaders: set[int] = set()
    for name in names:
        topic = yield from engine.topic(name, deadline)
        leaders.update(partition.leader for partition in topic.partitions)
    snapshot = yield from engine.snapshot(deadline)
    addresses = [b.address for b in snapshot.brokers.values() if b.id in leaders]
    parts: list[Completion[Any]] = [
        engine.start(_connection(engine, address, deadline)) for address in addresses
    ]
    if engine.transactions is None:  # otherwise init_transactions() requests the id
        parts.append(engine.start(_producer_id(engine, deadline)))
    try:
        for part in parts:
            while not part.done:
                yield Wait((part,))
            part.result()
    finally:  # if the caller has stopped waiting, cancel the rest
        for part in parts:
            engine.cancel(part, ClientClosedError("the caller no longer waits"))


def _connection(engine: ProducerEngine, address: Address, deadline: float) -> Flow[None]:
    now = yield START
    yield from engine.connect(address, deadline, now)


def _producer_id(engine: ProducerEngine, deadline: float) -> Flow[None]:
    now = yield START
    while not engine.sender.identity.usable():
        if now >= deadline:
            raise engine.timeout("the producer id", now)
        now = yield Wait((engine.network.changed,), deadline)
