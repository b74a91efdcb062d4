"""Run the snippets of README and guide as printed, except for the port.

Spark's snippets: tests/spark/test_readme_spark.py; secured: tests/interop/test_secure_settings.py.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from tests.time_limits import HANG_S

from odradek.testing import LocalCluster

README = Path(__file__).parents[2] / "README.md"
PAGES = (README, *(README.parent / "docs" / name for name in ("guide.md", "workers.md")))
PRINTED = "localhost:9092"


def snippets() -> dict[str, str]:
    """Return the Python blocks after comments like `<!-- snippet: produce -->`, by name."""
    pattern = r"<!-- snippet: (\w+) -->\n```python\n(.*?)```"
    found = [one for page in PAGES for one in re.findall(pattern, page.read_text(), re.DOTALL)]
    assert len(dict(found)) == len(found), "two snippets have one name"
    return dict(found)


@cache
def has_the_printed_port() -> bool:
    """Return whether this process may use the printed port, until it ends.

    Another process of pytest would also find the port free until brokers listen on it.
    """
    name = f"odradek-printed-port-{os.getuid()}.lock"
    lock = os.open(Path(tempfile.gettempdir()) / name, os.O_CREAT | os.O_RDWR)
    with suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    os.close(lock)
    return False


def printed_port() -> int:
    """Return the printed port if it is free, or 0 for any port."""
    if not has_the_printed_port():
        return 0
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", 9092))
        except OSError:
            return 0
    return 9092


SLOW_BROKER = r"\[odradek\] outage \w+ \(.*: bootstrap address .*\n\[odradek\] outage .* after .*\n"


def output(text: str, said: str = "") -> str:
    """Run a program and return its output; its stderr must match `said`.

    A warning about a broker that answers its first client slowly, as on a busy machine, is allowed.
    """
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    printed = re.sub(SLOW_BROKER, "", done.stderr, count=1)
    assert re.fullmatch(said, printed), done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def run(cluster: LocalCluster) -> Callable[..., str]:
    """Return a function that runs a snippet in a separate Python and returns its output."""
    cluster.create_topic("flights", partitions=3)
    cluster.create_topic("counts", partitions=1)
    cluster.create_topic("flights-failed", partitions=1)
    port = cluster.bootstrap_servers.rpartition(":")[2]

    def run_snippet(name: str, said: str = "") -> str:
        return output(snippets()[name].replace(PRINTED, f"localhost:{port}"), said)

    return run_snippet


def test_every_python_block_of_the_pages_is_run_by_a_test() -> None:
    of_readme = {"produce", "consume", "spark"}
    of_guide = {"assign", "group", "transactions", "frames", "admin", "items", "secured", "stream"}
    of_guide |= {"asyncio", "write", "test", "objects"}
    of_workers = {"workers", "async_workers"}
    assert set(snippets()) == of_readme | of_guide | of_workers
    assert sum(page.read_text().count("```python") for page in PAGES) == len(snippets())


def test_snippets_that_produce_and_read_records_print_the_shown_output(
    run: Callable[..., str],
) -> None:
    printed = run("produce")
    first = r"RecordMetadata\(topic='flights', partition=\d, offset=0, timestamp_ms=\d{13}\)\n"
    assert re.fullmatch(first + r"0 failed\n", printed)
    for name, number in (("consume", 1001), ("assign", 10)):
        lines = run(name).splitlines()
        assert len(lines) == number
        shown = re.compile(r"\d+ (None|b'N14228') b'(JFK|flight \d+)'")
        assert all(shown.fullmatch(line) for line in lines)
    *counts, gone = run("group").splitlines()
    assert sum(map(int, counts)) == 1001
    assert gone.startswith("gone: [TopicPartition(topic='flights', partition=")
    assert run("transactions") == ""
    printed = run("frames")
    assert sum(int(n) for n in re.findall(r"│ \d\s+┆ (\d+)\s+│", printed)) == 1001
    assert "[5 rows x 7 columns]" in printed  # the last line of a wide pandas table
    lines = run("asyncio").splitlines()
    assert len(lines) == 2 * 1001  # records of this snippet and of "produce"
    assert all(re.fullmatch(r"\d \d+ b'(JFK|flight \d+|\d+)'", line) for line in lines)
    warned = r"flights-\d: work on the record at offset \d+ failed \(attempt 1\): ValueError: .*\n"
    progress, letter = run("workers", warned).splitlines()
    worked = "in_work=0, waiting=0, buffered_bytes=0, finished=2002, retried=2, dead=1"
    assert progress == f"WorkProgress({worked}, lag=None, longest=0.0)"
    assert letter == "b'flight 7' b'there is no such flight'"
    assert run("async_workers") == "2002\n"


def test_the_write_snippet_prints_offsets(run: Callable[..., str]) -> None:
    offset, ranges = run("write").splitlines()
    assert int(offset) >= 0
    assert ranges.startswith("[OffsetRange(partition=TopicPartition(topic='counts', partition=0)")


def test_the_objects_snippet_prints_the_number_of_objects(run: Callable[..., str]) -> None:
    assert run("objects") == "2\n"


def test_the_test_snippet_passes_in_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_move.py").write_text(snippets()["test"])
    command = [sys.executable, "-m", "pytest", "-q", "test_move.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_the_admin_snippets_describe_and_delete_topics(run: Callable[..., str]) -> None:
    printed = run("admin")
    assert "TopicDescription(name='readme'" in printed
    assert printed.count("PartitionDescription(") == 6
    assert "ClusterDescription(" in printed
    assert "proved" in printed or "ready" in printed  # the broker's state in explain()
    gone, left = run("items").splitlines()
    assert gone == "['readme']"
    assert left.startswith("{'no-such-topic': UnknownTopicOrPartitionError(")
