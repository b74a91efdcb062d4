"""Draw the dashboard of examples/monitoring, filled by a real run through `move()`.

In: examples/monitoring/dashboard.json; real brokers (`LocalCluster`), a producer, a consumer of a
group, workers of another one, and `odradek groups lag --prometheus`, scraped each second. Out:
docs/dashboard.svg: each panel of the JSON in its place, drawn from its own expressions (`promql`).
Nothing of Grafana is needed. Must not: draw what wasn't scraped.

    .venv/bin/python tools/dashboard_picture.py      # two minutes and Java
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Self

import promql
from odradek import (
    Admin,
    Consumer,
    ConsumerRecord,
    NewTopic,
    Producer,
    Workers,
    prometheus_text,
)
from odradek.cli.demo.picture import BLUE, GREEN, GREY, ORANGE, PURPLE, RED
from odradek.cli.demo.svg import STYLE, Scale, ticks
from odradek.testing import LocalCluster

ROOT = Path(__file__).resolve().parent.parent
DASHBOARD = ROOT / "examples/monitoring/dashboard.json"
OUT = ROOT / "docs/dashboard.svg"
TOPIC, FAILED, PARTITIONS = "flights", "flights-failed", 6
RATE = 200  # Records a second.
LENGTH, MOVED, STOPPED, RESUMED = 120.0, 30.0, 80.0, 95.0  # Seconds of the run.
BROKEN, MENDED = 55.0, 65.0  # Between these all work of the workers fails.
BAD = 2000  # One of so many records is never worked on: a dead letter.
WINDOW = "10s"  # For $__rate_interval: scrapes are a second apart.
COLUMNS, WIDTH, ROW, TOP = 24, 1200, 26, 70
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, RED, GREY)
UNITS = {"s": " s", "ms": " ms", "cps": "/s"}


@dataclass(slots=True)
class Run:
    """What was scraped, and the times between which the brokers were away."""

    scrapes: promql.Scrapes = field(default_factory=promql.Scrapes)
    away: list[float] = field(default_factory=list)
    length: float = 0.0


class Service:
    """A producer, a consumer and workers, each in a thread of its own, while it is entered."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.reads = self.works = True
        self._ended = threading.Event()
        self.producer = Producer({**config, "client.id": "orders", "linger.ms": 5})
        self._letters = Producer({**config, "client.id": "letters"})
        reading = {**config, "auto.offset.reset": "earliest"}
        billing = {"client.id": "billing-1", "group.id": "billing", "auto.commit.interval.ms": 1000}
        mailing = {"client.id": "mailing-1", "group.id": "mailing", "enable.auto.commit": False}
        self.consumer = Consumer({**reading, **billing})
        self.worked = Consumer({**reading, **mailing})
        self._workers = Workers(
            self.worked,
            self._work,
            retry_on=ConnectionError,
            producer=self._letters,
            dead_letter_topic=FAILED,
            buffer_records=1000,
        )
        loops = self._write, self._read, lambda: self._workers.run(TOPIC)
        self._threads = [threading.Thread(target=loop) for loop in loops]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._workers.stop()
        for thread in self._threads:
            thread.join()
        for client in (self.producer, self.consumer, self.worked, self._letters):
            client.close(10.0)

    def told(self) -> str:
        """What its clients tell now."""
        return prometheus_text(self.producer, self.consumer, self.worked)

    def _write(self) -> None:
        number = 0
        while not self._ended.wait(0.1):
            for _ in range(RATE // 10):
                self.producer.send(TOPIC, b"%0100d" % number, partition=number % PARTITIONS)
                number += 1

    def _work(self, record: ConsumerRecord) -> None:
        time.sleep(0.01)
        if not self.works:
            raise ConnectionError("the mail server is away")
        if int(record.value or b"") % BAD == BAD - 1:
            raise ValueError("this has no address")

    def _read(self) -> None:
        self.consumer.subscribe([TOPIC])
        while not self._ended.is_set():
            if self.reads:
                self.consumer.poll(0.2)
            else:
                time.sleep(0.1)


def scraped(address: str) -> str:
    """What the exporter tells now."""
    connection = HTTPConnection(address, timeout=5.0)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def run() -> Run:
    """Two minutes of a service whose cluster moves, whose work fails and whose consumer stops."""
    done = Run()
    with LocalCluster(3) as cluster:
        config = cluster.client_config()
        with Admin(config) as admin:
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3), NewTopic(FAILED, 1, 3)])
        words = [str(Path(sys.executable).parent / "odradek"), "groups", "lag"]
        words += ["--prometheus", "127.0.0.1:0", "--interval", "2", "--timeout", "5"]
        words += ["--bootstrap-server", config["bootstrap.servers"]]
        with (
            subprocess.Popen(
                words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
            ) as exporter,
            Service(config) as service,
        ):
            address = _address(exporter)
            began = time.monotonic()
            moving = threading.Timer(MOVED, _move, (cluster, done, began))
            moving.start()
            while (at := time.monotonic() - began) < LENGTH:
                service.reads = not STOPPED < at < RESUMED
                service.works = not BROKEN < at < MENDED
                done.scrapes.add(at, "service", service.told())
                done.scrapes.add(at, "exporter", scraped(address))
                time.sleep(max(0.0, 1.0 - (time.monotonic() - began - at)))
            moving.join()
            done.length = at
            exporter.terminate()
    return done


def _address(exporter: subprocess.Popen[str]) -> str:
    """Where it serves; what it says later is read and left."""
    if exporter.stderr is None:
        raise RuntimeError("the exporter has no stderr")
    address = exporter.stderr.readline().split("//")[1].split("/")[0]
    threading.Thread(target=exporter.stderr.read, daemon=True).start()
    return address


def _move(cluster: LocalCluster, done: Run, began: float) -> None:
    done.away.append(time.monotonic() - began)
    cluster.move()
    done.away.append(time.monotonic() - began)


# The picture


@dataclass(slots=True)
class Curve:
    """One line of a panel."""

    label: str
    points: list[tuple[float, float]]


def curves(panel: Mapping[str, Any], done: Run) -> list[Curve]:
    """A panel's lines, by its own expressions."""
    variables = {"__rate_interval": WINDOW, "client": ".*", "group": ".*"}
    found: dict[str, Curve] = {}
    for target in panel["targets"]:
        query = promql.read(target["expr"], variables)
        for second in range(1, int(done.length)):
            for labels, value in query.value(done.scrapes, float(second)).items():
                known = dict(labels)
                label = re.sub(
                    r"\{\{(\w+)\}\}",
                    lambda name, known=known: known.get(name[1], ""),  # type: ignore[misc]
                    target["legendFormat"],
                )
                curve = found.setdefault(label, Curve(label, []))
                if not math.isnan(value):
                    curve.points.append((float(second), value))
    return list(found.values())


def render(dashboard: Mapping[str, Any], done: Run) -> str:
    """The whole file."""
    bottom = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in dashboard["panels"])
    height = TOP + bottom * ROW + 10
    body = [_text(20, 28, dashboard["title"], "title")]
    note = f"{int(done.length)} s of a real run; in the shaded part all brokers move elsewhere"
    fail = f"all work of the workers fails from {BROKEN:g} s to {MENDED:g} s"
    stop = f"the consumer stops from {STOPPED:g} s to {RESUMED:g} s"
    body.append(_text(20, 50, f"{note}; {fail}; {stop}", "tick"))
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        left, width = at["x"] * WIDTH / COLUMNS, at["w"] * WIDTH / COLUMNS
        top = TOP + at["y"] * ROW
        if panel["type"] == "row":
            body.append(_text(20, top + 18, panel["title"], "title"))
        else:
            body += _panel(panel, done, left, top, width, at["h"] * ROW)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}"><style>{STYLE}.name{{font-weight:bold}}</style>'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>'
    )
    return "\n".join([head, *body, "</svg>"]) + "\n"


def _panel(
    panel: Mapping[str, Any], done: Run, left: float, top: float, width: float, height: float
) -> Iterator[str]:
    lines = curves(panel, done)
    unit = panel["fieldConfig"]["defaults"]["unit"]
    yield _text(left + 20, top + 18, panel["title"], "name")
    x0, x1, y0, y1 = left + 60, left + width - 16, top + 28, top + height - 46
    most = 1.05 * (max((v for line in lines for _, v in line.points), default=0.0) or 1.0)
    x, y = Scale(0.0, done.length, x0, x1), Scale(0.0, most, y1, y0)
    for start, stop in zip(done.away[::2], done.away[1::2], strict=True):
        yield (
            f'<rect x="{x(start)}" y="{y0}" width="{round(x(stop) - x(start), 1)}" '
            f'height="{y1 - y0}" fill="{RED}" fill-opacity="0.12"/>'
        )
    for tick in ticks(most, 4):
        yield f'<line class="grid" x1="{x0}" x2="{x1}" y1="{y(tick)}" y2="{y(tick)}"/>'
        shown = f"{100 * tick:g}%" if unit == "percentunit" else f"{tick:,g}{UNITS.get(unit, '')}"
        yield _text(x0 - 6, y(tick) + 4, shown, "tick", "end")
    for tick in ticks(done.length, 4):
        yield _text(x(tick), y1 + 16, f"{tick:g} s", "tick", "middle")
    place, below = x0, y1 + 30  # of the legend
    for line, colour in zip(lines, COLOURS, strict=False):
        for piece in _pieces(line.points):
            points = " ".join(f"{x(at)},{y(value)}" for at, value in piece)
            yield (
                f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
            )
        needed = 20 + 6.6 * len(line.label)
        if place + needed > x1:
            place, below = x0, below + 13
        yield f'<rect x="{place}" y="{below - 6}" width="14" height="4" fill="{colour}"/>'
        yield _text(place + 20, below, line.label, "tick")
        place += needed + 14


def _pieces(points: Sequence[tuple[float, float]]) -> Iterator[list[tuple[float, float]]]:
    """The parts of a line in which each second has a value, without what a straight line hides."""
    piece: list[tuple[float, float]] = []
    for point in points:
        if piece and point[0] - piece[-1][0] > 1.5:
            yield _thinned(piece)
            piece = []
        piece.append(point)
    if piece:
        yield _thinned(piece)


def _thinned(piece: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Points whose neighbours have the same value are on the line anyway."""
    return [
        point
        for n, point in enumerate(piece)
        if n in (0, len(piece) - 1) or not piece[n - 1][1] == point[1] == piece[n + 1][1]
    ]


def _text(x: float, y: float, words: str, kind: str, anchor: str = "start") -> str:
    return (
        f'<text x="{round(x, 1)}" y="{y}" class="{kind}" text-anchor="{anchor}">'
        f"{escape(words)}</text>"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", nargs="?", type=Path, default=OUT)
    out: Path = parser.parse_args(arguments).out
    out.write_text(render(json.loads(DASHBOARD.read_text()), run()))


if __name__ == "__main__":
    main()
