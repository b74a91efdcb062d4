"""The demo from start to end: cluster, producer, Spark, the move, the comparison.

In: the options of `odradek demo`. Out: a `Result`, files in the output folder. Must not: help the
clients: they only get one address, and credentials of a secured cluster.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from odradek.api.admin import Admin
from odradek.cli.demo import report, svg
from odradek.cli.demo.data import PARTITIONS, TOPIC, Flights
from odradek.cli.demo.display import DemoDisplay
from odradek.cli.demo.pipeline import DemoPipeline
from odradek.cli.demo.sending import CONSUMER, PRODUCER, LoopSending, Sending
from odradek.cli.demo.timeline import EventReader, Teller, outage_of, recovery
from odradek.clients.admin.admin_arguments import NewTopic
from odradek.common.errors import KafkaError
from odradek.testing import LocalCluster, ensure_java_environment

SHOWN = {
    "acknowledged": "acknowledged to the producer",
    "aggregated": "in Spark's aggregate",
    "written": "in Parquet",
}
SHOWN_OF_LOOP = {**SHOWN, "read": "read in the event loop"}
LANDING_TIMEOUT = 150.0
POLL = 0.5


class DemoError(KafkaError):
    """The demo couldn't be completed."""


class Demo:
    """One run of the demo."""

    def __init__(
        self,
        output: Path,
        *,
        rows: int | None,
        seconds: float,
        brokers: int,
        json: bool,
        secure: bool = False,
        in_loop: bool = False,
    ) -> None:
        """`in_loop`: use an asyncio producer, and a consumer in the same event loop."""
        self._output = output
        self._events = output / "events"
        self._flights = Flights(rows)
        self._seconds = seconds
        self._brokers = brokers
        self._security = _security() if secure else {}
        self._in_loop = in_loop
        self._shown = SHOWN_OF_LOOP if in_loop else SHOWN
        self._display = DemoDisplay(self._shown, to_stderr=json)
        self._reader = EventReader(self._events)
        self._samples: list[report.Moment] = []
        self._begin = time.time()
        self._teller = Teller()

    def run(self) -> report.DemoResult:
        """Run the demo; stop all started processes at the end, even after Ctrl-C."""
        self._events.mkdir(parents=True, exist_ok=True)
        os.environ["ODRADEK_EVENTS_DIR"] = str(self._events)
        ensure_java_environment()
        options = {**self._security, "report": self._say}
        with self._display, LocalCluster(self._brokers, **options) as cluster:
            spoken = f", with {cluster.security}" if self._security else ""
            self._say(f"{self._brokers} Kafka {cluster.version} brokers are up{spoken}")
            self._create_topic(cluster)
            with self._pipeline(cluster) as pipeline:
                return self._publish(cluster, pipeline)

    def _create_topic(self, cluster: LocalCluster) -> None:
        config = {**cluster.client_config(), "client.id": "demo-admin"}
        with Admin(config) as admin:
            replication = min(3, self._brokers)
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, replication)], timeout=60)
        self._say(f"topic {TOPIC}: {PARTITIONS} partitions, replication {replication}")

    @contextmanager
    def _pipeline(self, cluster: LocalCluster) -> Iterator[DemoPipeline]:
        pipeline = DemoPipeline(cluster.client_config(), self._output, self._events)
        try:
            pipeline.start()
            self._say("Spark runs two streaming queries on the topic")
            yield pipeline
        finally:
            pipeline.stop()

    def _publish(self, cluster: LocalCluster, pipeline: DemoPipeline) -> report.DemoResult:
        total = self._flights.rows
        made = LoopSending if self._in_loop else Sending
        with made(cluster.client_config(), self._flights, self._seconds) as sending:
            if self._in_loop:
                self._say(f"{PRODUCER} and {CONSUMER} run in one event loop")
            self._display.begin(total)
            start = time.monotonic()
            sending.start()
            mover = threading.Thread(target=self._move, args=(cluster,), daemon=True)
            moved = False
            while not sending.over or self._behind(sending):
                self._watch(sending, pipeline, start)
                if not moved and self._time_to_move(time.monotonic() - start):
                    moved = True
                    mover.start()
                if sending.over and sending.error is None:
                    sending_ended = self._ended(start)
                    if time.monotonic() - sending_ended > LANDING_TIMEOUT:
                        raise DemoError(f"rows are still missing after {LANDING_TIMEOUT:.0f} s")
                time.sleep(POLL)
            mover.join(60)
            if sending.error is not None:
                raise DemoError(f"{sending.who} failed: {sending.error}") from sending.error
            self._watch(sending, pipeline, start)
            return self._finish(cluster, pipeline, sending, start)

    def _time_to_move(self, at: float) -> bool:
        """Return whether to move the cluster: in the middle, after Spark's first rows.

        A slow start of Spark delays the move to at most three quarters of the time.
        """
        rows = self._samples[-1].rows
        landed = min(rows["aggregated"], rows["written"])
        return at >= self._seconds / 2 and (landed > 0 or at >= 0.75 * self._seconds)

    def _behind(self, sending: Sending) -> bool:
        if sending.error is not None:
            return False
        last = self._samples[-1] if self._samples else None
        return last is None or min(last.rows.values()) < sending.acknowledged

    def _ended(self, start: float) -> float:
        """Return the time of the last acknowledgement, on the monotonic clock."""
        top = self._samples[-1].rows["acknowledged"]
        return start + next(s.at for s in self._samples if s.rows["acknowledged"] == top)

    def _move(self, cluster: LocalCluster) -> None:
        self._say("the whole cluster stops", style="bold red")
        cluster.move()
        self._say(
            f"all brokers are ready again, at {', '.join(cluster.broker_addresses)}",
            style="bold green",
        )

    def _watch(self, sending: Sending, pipeline: DemoPipeline, start: float) -> None:
        aggregated, written = pipeline.landed()
        at = time.monotonic() - start
        rows = {**sending.rows(), "aggregated": aggregated, "written": written}
        self._samples.append(report.Moment(at, rows))
        self._display.progress(time.time() - self._begin, rows)
        for at, line in self._teller.lines(self._reader.poll()):
            self._display.tell(at - self._begin, line)

    def _finish(
        self, cluster: LocalCluster, pipeline: DemoPipeline, sending: Sending, start: float
    ) -> report.DemoResult:
        self._say("comparing the result with the data set")
        written, distinct = pipeline.parquet_rows()
        table = pipeline.result()
        self._reader.poll()
        events = self._reader.events
        exited, back = outage_of(cluster.timeline)
        others = [event for event in events if event.client != CONSUMER]  # only Spark's reads count
        times = recovery(others, exited, back, PRODUCER)
        result = report.build(
            sent=sending.acknowledged,
            table=table,
            reference=self._flights.reference(),
            written=written,
            distinct=distinct,
            more=sending.readings(),
            recovery=times,
            events=events,
        )
        began = time.time() - (time.monotonic() - start)
        outage = None
        if exited is not None and times.outage is not None:
            outage = (exited - began, exited - began + times.outage)
        marks = [
            (e.time - began, e.kind) for e in events if e.kind in report.MARKS and e.time > began
        ]
        drawing = report.picture(self._samples, self._shown, outage, marks, result)
        svg.write(drawing, self._output / "demo.svg")
        return result

    def _say(self, text: str, *, style: str = "") -> None:
        self._display.tell(time.time() - self._begin, text, style=style)


def _security() -> dict[str, Any]:
    """Return the security options of the demo's cluster; the password is created for this run."""
    return {
        "security": "SASL_SSL",
        "mechanisms": ["SCRAM-SHA-512"],
        "users": {"demo": secrets.token_urlsafe(16)},
    }
