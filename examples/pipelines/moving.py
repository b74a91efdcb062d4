"""Move a whole cluster while `copy.yml` runs on it; the copy is complete, with each record once.

    python examples/pipelines/moving.py [RECORDS]

Starts a cluster and the pipeline, sends orders, stops the cluster and starts it at other addresses
(the pipeline only knows one address, which stays the same), stops the pipeline with SIGTERM and
reads the copy like a read_committed consumer. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import IO, Any

from odradek import Consumer, Producer
from odradek.testing import LocalCluster

SPEC = Path(__file__).with_name("copy.yml")


def order(n: int) -> bytes:
    return json.dumps({"id": n, "customer": f"c{n % 5}", "cents": 1000 + n}).encode()


def send(cluster: LocalCluster, start: int, stop: int) -> None:
    with Producer(cluster.client_config()) as producer:
        for n in range(start, stop):
            producer.send("orders", value=order(n), key=f"c{n % 5}".encode())
        producer.flush(timeout=120)


def follow(lines: IO[str], events: list[dict[str, Any]]) -> None:
    for line in lines:
        events += [json.loads(line)]


def wait_for(events: list[dict[str, Any]], rows: int, process: subprocess.Popen[str]) -> None:
    """Wait until the pipeline has processed this number of rows."""
    deadline = time.monotonic() + 150
    while sum(e["rows"] for e in events if e["event"] == "batch") < rows:
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the pipeline got stuck or ended: {events[-3:]}")
        time.sleep(0.2)


def copied(cluster: LocalCluster) -> list[int]:
    """Return the numbers of all orders that are in the copy."""
    config = {**cluster.client_config(), "isolation.level": "read_committed"}
    found: list[int] = []
    with Consumer({**config, "auto.offset.reset": "earliest"}) as consumer:
        places = consumer.partitions_for("large-orders")
        consumer.assign(places, until=consumer.end_offsets(places))
        while records := consumer.poll(60.0):
            found += [json.loads(record.value or b"")["id"] for record in records]
    return found


def main() -> None:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    with LocalCluster(brokers=1) as cluster, tempfile.TemporaryDirectory() as folder:
        for topic in ("orders", "large-orders"):
            cluster.create_topic(topic, partitions=2)
        send(cluster, 0, records // 2)
        process = subprocess.Popen(  # noqa: S603
            [Path(sys.executable).with_name("odradek"), "pipeline", "run", SPEC, "--json"],
            env={**os.environ, "KAFKA": cluster.bootstrap_servers, "STORAGE": folder},
            stdout=subprocess.PIPE,
            text=True,
        )
        events: list[dict[str, Any]] = []
        output: Any = process.stdout
        reader = threading.Thread(target=follow, args=(output, events), daemon=True)
        reader.start()
        try:
            wait_for(events, records // 2, process)
            cluster.move()
            send(cluster, records // 2, records)
            wait_for(events, records, process)
        finally:
            process.send_signal(signal.SIGTERM)
            status = process.wait(90)
        reader.join(10)
        times = Counter(copied(cluster))
    result = {
        "status": status,
        "copied": len(times),
        "missing": records - len(times),
        "repeated": sum(n > 1 for n in times.values()),
        "outages": [e["seconds"] for e in events if e["event"] == "back"],
        "batches": sum(e["event"] == "batch" and e["rows"] > 0 for e in events),
    }
    print(json.dumps(result))
    good = status == 0 and not result["missing"] and not result["repeated"]
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
