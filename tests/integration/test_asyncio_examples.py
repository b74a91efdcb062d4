"""Run the asyncio examples: with a real uvicorn, FastStream, and the cells of a notebook."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from odradek import Producer
from odradek.testing import FakeCluster

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PATIENCE = 60.0


@contextmanager
def served(fake: FakeCluster) -> Iterator[Callable[[str, str], tuple[int, Any]]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "--port", str(port)]

    def ask(method: str, path: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            said = answer.read().decode()
            plain = answer.getheader("content-type", "").startswith("text/plain; version=0.0.4")
            return answer.status, said if plain else json.loads(said)
        finally:
            connection.close()

    with subprocess.Popen(
        [*command, "orders:app"],
        cwd=EXAMPLES / "fastapi",
        env={**os.environ, "KAFKA": fake.bootstrap_servers, "PYTHONDONTWRITEBYTECODE": "1"},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            until(lambda: ask("GET", "/health")[0] == 200)
            yield ask
            process.terminate()
            _, said = process.communicate(timeout=PATIENCE)
            assert process.returncode in (0, -15), said
            assert "Traceback" not in said
            assert "Application shutdown complete" in said
        finally:
            process.kill()


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with suppress(OSError):
            if true():
                return
        time.sleep(0.05)
    raise AssertionError("it never came")


def test_the_fastapi_service_recovers_after_all_brokers_moved() -> None:
    with FakeCluster(brokers=3, topics={"orders": 3}) as fake, served(fake) as ask:
        for n in range(5):
            status, written = ask("POST", f"/orders/ann?item=tea{n}")
            assert status == 201
            assert written["offset"] >= 0
        until(lambda: ask("GET", "/orders")[1] == {"ann": 5})
        for broker in fake.broker_ids:
            fake.move(broker)
        for _ in range(5):
            assert ask("POST", "/orders/bob?item=coffee")[0] == 201
        until(lambda: ask("GET", "/orders")[1] == {"ann": 5, "bob": 5})
        until(lambda: all(it["reason"] is None for it in ask("GET", "/health")[1].values()))
        status, told = ask("GET", "/health")
        assert status == 200
        assert all(it["ok"] for it in told.values()), told
        assert (told["consumer"]["group"]["assigned"], told["consumer"]["lag"]) == (3, 0)
        told = ask("GET", "/explain")[1]
        assert {it["cluster_id"] for it in told.values()} == {fake.cluster_id}
        assert {it["ended"] for it in told.values()} == {None}
        told = ask("GET", "/metrics")[1]
        sent = re.findall(r"^kafka_producer_\w+_record_send_total{.*} (\d+)", told, re.MULTILINE)
        assert 10 in map(float, sent)
        for broker in fake.broker_ids:
            fake.kill(broker)
        until(lambda: ask("GET", "/health")[0] == 503)
        told = ask("GET", "/health")[1]
        assert any("Start the broker" in (it["cure"] or "") for it in told.values()), told
        for broker in fake.broker_ids:
            fake.start(broker)
        until(lambda: ask("GET", "/health")[0] == 200)


def test_the_fastapi_service_skips_a_key_that_is_not_utf8() -> None:
    """Skip a record that can't be decoded: each new member of the group would stop there again."""
    with (
        FakeCluster(brokers=1, topics={"orders": 1}) as fake,
        Producer({"bootstrap.servers": fake.bootstrap_servers}) as producer,
        served(fake) as ask,
    ):
        producer.send("orders", b"tea", key=b"\xff").result(PATIENCE)
        assert ask("POST", "/orders/ann?item=tea")[0] == 201
        until(lambda: ask("GET", "/orders")[1] == {"\ufffd": 1, "ann": 1})
        assert "counting" not in ask("GET", "/health")[1]


CELLS = """
import ast, asyncio, inspect, json, sys

async def main():
    names = {}
    for cell in json.load(sys.stdin):
        made = eval(compile(cell, "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        if inspect.isawaitable(made):
            await made

asyncio.run(main())
"""
"""Run cells as notebooks do; `python -m asyncio` of 3.13.0 splits multi-line statements."""


def test_the_cells_of_the_notebook_run_with_top_level_await() -> None:
    notebook = json.loads((EXAMPLES / "notebook/orders.ipynb").read_text())
    cells = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
    assert len(cells) == 5
    with FakeCluster(topics={"orders": 1}) as fake:
        done = subprocess.run(
            [sys.executable, "-c", CELLS],
            input=json.dumps(cells),
            env={**os.environ, "KAFKA": fake.bootstrap_servers},
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
            check=True,
        )
    assert "[(b'ann', b'tea')]" in done.stdout
    assert "It works" in done.stdout
    assert "Traceback" not in done.stderr


def test_faststream_on_the_compat_module_recovers_after_all_brokers_moved() -> None:
    with FakeCluster(brokers=3, topics={"orders": 1, "bills": 1}) as fake:
        command = [str(Path(sys.executable).parent / "faststream"), "run", "bills:app"]
        with (
            Producer({"bootstrap.servers": fake.bootstrap_servers}) as producer,
            subprocess.Popen(
                command,
                cwd=EXAMPLES / "faststream",
                env={**os.environ, "KAFKA": fake.bootstrap_servers, "PYTHONDONTWRITEBYTECODE": "1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            ) as process,
        ):
            try:
                assert process.stdout is not None
                for n in range(6):
                    if n == 3:
                        for broker in fake.broker_ids:
                            fake.move(broker)
                    producer.send("orders", b"tea %d" % n).result(PATIENCE)
                wanted = [f"one tea {n}, please pay\n" for n in range(6)]
                said, found = [], []
                for line in process.stdout:
                    said.append(line)
                    found += [line] if line.startswith("one ") else []
                    if len(found) == len(wanted):
                        break
                assert found == wanted, "".join(said)
                process.terminate()
                rest, _ = process.communicate(timeout=PATIENCE)
            finally:
                process.kill()
        assert "Traceback" not in "".join(said) + rest
        assert process.returncode in (0, -15), rest
