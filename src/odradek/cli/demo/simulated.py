"""The demo in virtual time: without Java and Spark, it takes a second or two.

In: rows of the sample, a seed. Out: a `Story`: the result, the timeline, each client's requests
in the outage, a picture. Brokers and network are simulated; `Producer` and `Consumer` are the real
ones. Must not: help the clients: they only get one address.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from json import loads
from typing import Any

from odradek.api.base import on_host
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.cli.demo import report
from odradek.cli.demo.data import PARTITIONS, TOPIC
from odradek.cli.demo.picture import GREY, PURPLE, Line, Panel, PanelPicture
from odradek.cli.demo.sample import FlightSample, Table
from odradek.cli.demo.timeline import Teller, TraceReader, recovery
from odradek.runtime.hosts.delivery_future import DeliveryFuture
from odradek.runtime.hosts.record_future import RecordFuture
from odradek.simulation import SimulatedCluster, World

PRODUCER, CONSUMER = "demo-producer", "demo-consumer"
AWAY = 8.0
"""Virtual seconds from the end of the old brokers to the start of the new ones."""
TICK = 0.25
PATIENCE = 120.0
"""The demo gives up after this many virtual seconds in which no row arrives, once all were sent."""
SHOWN = {
    "published": "published by the application",
    "acknowledged": "acknowledged to the producer",
    "read": "read by the consumer",
}
NAMED = 10
"""Maximum number of missing or duplicate rows that are listed."""


@dataclass(frozen=True, slots=True)
class Dialling:
    """Connection attempts and requests of a client, from the outage to its first new metadata."""

    client: str
    connection_attempts: int
    refused: int
    most_in_a_second: int
    metadata_requests: int

    def __str__(self) -> str:
        return (
            f"{self.client} during the outage: {self.connection_attempts} connection attempts, "
            f"{self.refused} of them refused, at most {self.most_in_a_second} per second; "
            f"metadata requests: {self.metadata_requests}"
        )


@dataclass(frozen=True, slots=True)
class Story:
    """Results of a demo, for its report."""

    result: report.DemoResult
    dialling: list[Dialling]
    timeline: list[tuple[float, str]]
    missing: list[int]
    doubled: list[int]
    virtual_s: float
    wall_s: float
    seed: int
    picture: PanelPicture
    rates: dict[str, list[float]]
    """Number of rows in each virtual second, by state (acknowledged, read …)."""

    @property
    def ok(self) -> bool:
        """Whether each row was read exactly once, and the table is as expected."""
        return self.result.ok

    def summary(self) -> dict[str, Any]:
        """Return the values that are printed line by line."""
        return self.result.to_dict()

    def closing(self) -> list[str]:
        """Return lines about each client's outage, the flow of rows, and errors."""
        most = max((rate for rates in self.rates.values() for rate in rates), default=0.0) or 1.0
        lines = [
            f"{SHOWN[name]:>29} {report.sparkline(rates, most)}"
            for name, rates in self.rates.items()
        ]
        lines.append(f"{'one block per second; peak:':>29} {most:,g} rows")
        lines += [str(one) for one in self.dialling]
        for what, rows in (
            ("never arrived", self.missing),
            ("arrived more than once", self.doubled),
        ):
            if rows:
                shown = ", ".join(map(str, rows[:NAMED]))
                lines.append(f"rows that {what}: {shown}{' …' if len(rows) > NAMED else ''}")
        lines.append(f"{self.virtual_s:.0f} virtual seconds took {self.wall_s:.1f} s")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        return {
            **self.result.to_dict(),
            "missing_rows": self.missing[:NAMED],
            "doubled_rows": self.doubled[:NAMED],
            "clients": [asdict(one) for one in self.dialling],
            "virtual_s": round(self.virtual_s, 3),
            "wall_s": round(self.wall_s, 3),
            "seed": self.seed,
            "timeline": [{"at": round(at, 3), "what": what} for at, what in self.timeline],
        }


class Simulated:
    """One run of the simulated demo."""

    def __init__(
        self,
        sample: FlightSample,
        say: Callable[[float, str], None],
        *,
        seconds: float = 60.0,
        brokers: int = 3,
        seed: int = 1,
    ) -> None:
        self._sample = sample
        self._say_to = say
        self._seconds = seconds
        self._seed = seed
        self._began = time.perf_counter()
        self.world = World(seed=seed)
        self.cluster = SimulatedCluster(self.world, brokers=brokers)
        self._reader = TraceReader(self.world)
        self._teller = Teller()
        self._timeline: list[tuple[float, str]] = []
        self._samples: list[report.Moment] = []
        self._table = Table()
        self._read: Counter[int] = Counter()
        self._landed = 0
        self._sent = 0
        self._begin = 0.0
        self._last_news = 0.0
        self._done = 0
        self._acknowledged = 0
        self._exited: float | None = None
        self._back: float | None = None

    def run(self) -> Story:
        """Run the demo."""
        cluster = self.cluster
        cluster.create_topic(TOPIC, PARTITIONS)
        self._say(f"{len(cluster.brokers)} simulated brokers are up at {self._addresses()}")
        self._live()
        self._listen()
        return self._story()

    def _live(self) -> None:
        """Run both clients in turn: the producer sends some rows, then the consumer polls."""
        world = self.world
        with (
            on_host(world.host(PRODUCER), Producer, self._told(PRODUCER)) as producer,
            on_host(world.host(CONSUMER), Consumer, self._told(CONSUMER)) as consumer,
        ):
            partitions = consumer.partitions_for(TOPIC)
            consumer.assign(partitions)
            consumer.seek_to_beginning(partitions)
            self._starts()
            for end in self._steps():
                for key, value in self._due(end):
                    producer.send(TOPIC, value=value, key=key).add_done_callback(self._count)
                while world.now < end:
                    self._take(consumer.poll(timeout=end - world.now))

    def _told(self, client: str) -> dict[str, Any]:
        """Return the settings of a client: only the old address and the client's name."""
        return {"bootstrap.servers": self.cluster.bootstrap_servers, "client.id": client}

    def _starts(self) -> None:
        """Start the time of sending, and schedule the cluster's move in the middle."""
        self._say(
            f"{self._sample.rows:,} {self._sample.kind} are published over {self._seconds:g} s"
        )
        self._begin = self._last_news = self.world.now
        self.world.at(self._begin + self._seconds / 2, self._move)

    def _steps(self) -> Iterator[float]:
        """Yield the end times of small steps, until all rows arrived or none arrive any more."""
        rows, world = self._sample.rows, self.world
        end = self._begin
        over = self._begin + self._seconds
        while self._landed < rows or self._done < rows or world.now < over:
            end = max(end + TICK, world.now)
            landed = self._landed
            yield end
            self._listen()
            counts = (self._sent, self._acknowledged, self._landed)
            rows_by_fate = dict(zip(SHOWN, counts, strict=True))
            self._samples.append(report.Moment(world.now, rows_by_fate))
            if self._landed > landed or self._sent < rows:
                self._last_news = world.now
            elif world.now - self._last_news > PATIENCE:
                self._say(f"no progress for {PATIENCE:g} s")
                return

    def _due(self, end: float) -> Iterator[tuple[bytes | None, bytes]]:
        """Yield the rows to send now, so that the rate is even until `end`."""
        share = min(1.0, (end - self._begin) / self._seconds)
        for row in range(self._sent, int(self._sample.rows * share)):
            self._sent = row + 1
            yield self._sample.record(row)

    def _count(self, future: RecordFuture | DeliveryFuture) -> None:
        self._done += 1
        self._acknowledged += future.exception() is None

    def _take(self, records: Iterable[Any]) -> None:
        for record in records:
            flight = loads(record.value)
            self._table.add(flight)
            self._read[flight["row"]] += 1
        self._landed = len(self._read)

    def _move(self) -> None:
        self._listen()
        self._exited = self.world.now
        self._say("the whole cluster stops")
        self.cluster.move(after=AWAY)
        # Scheduled after the brokers' start, so that it runs after the start at the same time.
        self.world.after(AWAY, self._returns)

    def _returns(self) -> None:
        self._back = self.world.now
        self._say(f"the cluster starts again, at {self._addresses()}")

    def _addresses(self) -> str:
        return ", ".join(str(broker.address) for broker in self.cluster.brokers.values())

    def _listen(self) -> None:
        for at, line in self._teller.lines(self._reader.poll()):
            self._say(line, at)

    def _say(self, text: str, at: float | None = None) -> None:
        moment = self.world.now if at is None else at
        self._timeline.append((moment, text))
        self._say_to(moment, text)

    def _story(self) -> Story:
        rows, events = self._sample.rows, self._reader.events
        times = recovery(events, self._exited, self._back, PRODUCER)
        result = report.build(
            sent=rows,
            table=self._table.rows(),
            reference=self._sample.reference(),
            written=self._read.total(),
            distinct=len(self._read),
            recovery=times,
            events=events,
        )
        outage = None
        if self._exited is not None and times.outage is not None:
            outage = (self._exited, self._exited + times.outage)
        marks = [(e.time, e.kind) for e in events if e.kind in report.MARKS]
        return Story(
            result=result,
            dialling=[self._dialling(name) for name in (PRODUCER, CONSUMER)],
            timeline=self._timeline,
            missing=[row for row in range(rows) if row not in self._read],
            doubled=[row for row, times in self._read.items() if times > 1],
            virtual_s=self.world.now,
            wall_s=time.perf_counter() - self._began,
            seed=self._seed,
            picture=report.picture(
                self._samples, SHOWN, outage, marks, result, more=[self._dials()]
            ),
            rates={name: self._rates(name) for name in SHOWN},
        )

    def _dialling(self, client: str) -> Dialling:
        """Return the client's connection attempts and requests, from the outage to new metadata."""
        begin = self.world.now if self._exited is None else self._exited
        mine = [e for e in self._reader.events if e.client == client and e.time > begin]
        end = next((e.time for e in mine if e.kind == "rebootstrapped"), self.world.now)
        dials = [d for d in self.world.dials if d.client == client and begin < d.at <= end]
        at = [d.at for d in dials]
        return Dialling(
            client,
            connection_attempts=len(dials),
            refused=sum(d.outcome == "refused" for d in dials),
            most_in_a_second=max((sum(a <= b < a + 1 for b in at) for a in at), default=0),
            metadata_requests=sum(e.kind == "metadata_request" and e.time <= end for e in mine),
        )

    def _dials(self) -> Panel:
        """Return a panel of each client's connection attempts in the second before a sample."""
        lines = []
        for client, colour in ((PRODUCER, PURPLE), (CONSUMER, GREY)):
            at = [d.at for d in self.world.dials if d.client == client]
            points = [
                (s.at, float(bisect_right(at, s.at) - bisect_right(at, s.at - 1.0)))
                for s in self._samples
            ]
            lines.append(Line(client, colour, points))
        return Panel("connection attempts/s", lines, height=0.7)

    def _rates(self, name: str) -> list[float]:
        whole = round(1 / TICK)
        values = [0, *(s.rows[name] for s in self._samples)]
        return [float(b - a) for a, b in zip(values[::whole], values[whole::whole], strict=False)]
