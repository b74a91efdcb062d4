"""Spark's sink with an isolated coordinator that returns outdated offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.simulation.produce_script import leader_of
from tests.simulation.test_spark_sink_abort import Job
from tests.simulation.transactional import PROTOCOLS

from odradek.simulation.brokers.broker import SimulatedBroker
from odradek.spark.options.option_table import BATCH
from odradek.spark.sink.sink_options import SinkOptions, parse_sink_options

NAMES = ("ledger", "driver", "0", "1")


class CutOff(Job):
    """The coordinator of the ledger's group and of task 0's markers is isolated.

    Batch 1 is written with the new coordinators; a later driver and its tasks only know the
    isolated coordinator.
    """

    def __init__(self, version: int, ids: Sequence[str] = ()) -> None:
        """Write batch 1; coordinators of the transactional ids `ids` aren't isolated."""
        self.prefix = "odradek"
        super().__init__(version)
        self._not_at_it = [*NAMES[1:], *ids]
        self.commit([self.task(p, [p]) for p in (0, 1)])
        self.prefix = next(name for n in range(9999) if self._fits(name := f"job{n}"))
        messages = [self.task(p, [p + 2]) for p in (0, 1)]
        self.commit(messages)
        self.zombie = self._coordinator("ledger")
        self.ids = [
            f"{m.partition}.{m.ticket[0]}.{m.ticket[1] + n}" for m in messages for n in (0, 2, 3)
        ]
        """Transactional ids (without prefix) of these tasks, and of later ones.
        """

    def cut_off(self) -> None:
        """Isolate the coordinator of the ledger's group."""
        self.scene.world.advance(5.0)
        self.scene.cluster.zombie_leader(self.zombie.id, fenced=0.5)
        self.scene.world.advance(1.0)
        brokers = self.scene.cluster.brokers.values()
        self.servers = ",".join(str(b.address) for b in brokers if b is not self.zombie)

    servers = ""
    """Brokers that clients ask first."""

    @property
    def options(self) -> SinkOptions:
        servers = {"kafka.bootstrap.servers": self.servers or self.scene.cluster.bootstrap_servers}
        given = {"topic": "t", "jobId": "job", "transactionalIdPrefix": self.prefix}
        return parse_sink_options({**servers, **given, "delivery": "exactly_once"}, BATCH)

    def _coordinator(self, name: str, kind: str = "__consumer_offsets") -> SimulatedBroker:
        cluster = self.scene.cluster
        topic = cluster.groups if kind == "__consumer_offsets" else cluster.transactions
        found: SimulatedBroker = leader_of(
            cluster, topic.index(f"{self.prefix}-job-sink-{name}"), kind
        )
        return found

    def _fits(self, prefix: str) -> bool:
        self.prefix = prefix
        zombie = self._coordinator("ledger")
        others = {self._coordinator(n, "__transaction_state").id for n in self._not_at_it}
        return self._coordinator("0") is zombie and zombie.id not in others

    def beside_it(self) -> None:
        """Let clients ask the isolated broker first."""
        self.servers = str(self.zombie.address)


@pytest.fixture
def job(version: int) -> CutOff:
    found = CutOff(version, CutOff(version).ids)
    found.cut_off()
    return found


@PROTOCOLS
def test_a_committed_batch_is_not_written_again(job: CutOff) -> None:
    job.commit([job.task(p, [p + 4], 1) for p in (0, 1)], 1)
    assert job.scene.visible() == [0, 1, 2, 3, 4, 5]
    job.beside_it()
    begin = job.clock.now()
    messages = [job.task(p, [p + 4], 1) for p in (0, 1)]
    job.commit(messages, 1)
    assert job.scene.visible() == [0, 1, 2, 3, 4, 5]
    assert job.clock.now() - begin < 30.0
    messages = [job.task(p, [p + 6], 2) for p in (0, 1)]
    job.commit(messages, 2)
    assert job.scene.visible() == [0, 1, 2, 3, 4, 5, 6, 7]


@PROTOCOLS
def test_a_failing_driver_does_not_abort_a_batch_recorded_as_committed(
    job: CutOff, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark calls abort() if commit() raises; a later run commits the batch."""
    messages = [job.task(p, [p + 4], 1) for p in (0, 1)]

    def die(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("odradek.spark.sink.sink_driver.DriverLedger.complete", die)
        with pytest.raises(KeyboardInterrupt):
            job.commit(messages, 1)
    assert job.scene.visible() == [0, 1, 2, 3]
    job.beside_it()
    job.abort(messages, 1)
    job.commit(messages, 1)
    assert job.scene.visible() == [0, 1, 2, 3, 4, 5]


@PROTOCOLS
def test_a_driver_sends_no_additional_requests_if_no_other_driver_was_started(version: int) -> None:
    job, asked = Job(version), list[str]()
    for batch in range(3):
        messages = [job.task(p, [2 * batch + p], batch) for p in (0, 1)]
        if batch == 2:
            job.scene.cluster.observers.append(
                lambda _b, _c, request: asked.append(str(request.body))
            )
        job.commit(messages, batch)
    ledger = [text for text in asked if "sink-ledger" in text]
    assert sum(text.startswith("OffsetFetchRequest") for text in ledger) == 1
    assert not any(text.startswith("EndTxn") and "committed=False" in text for text in asked)
