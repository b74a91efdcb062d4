"""Test `odradek produce`, `consume` and `broker-api-versions` as typed, with real brokers."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import IO, Any, cast

import pytest
from typer.testing import CliRunner

from odradek.cli import build
from odradek.testing import LocalCluster
from odradek.testing.brokers.shared_clusters import SharedClusters

ODRADEK = Path(sys.executable).parent / "odradek"
PATIENCE = 60.0


def start(cluster: LocalCluster, command: str, *words: str, **how: Any) -> subprocess.Popen[bytes]:
    """Start a command on a cluster; its standard streams are pipes unless `how` says otherwise."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    servers = ["--bootstrap-server", cluster.bootstrap_servers]
    how = {"bufsize": 0, **pipes, **how}  # unbuffered, so that readline() reads only its line
    return subprocess.Popen([ODRADEK, command, *servers, *words], **how)


def run(
    cluster: LocalCluster, command: str, *words: str, given: bytes = b""
) -> tuple[int, str, str]:
    """Run a command to its end and return its exit status, standard output and standard error.

    `consume` writes to its process's file descriptor, so it runs as a process; others run here.
    """
    if command == "consume":
        with start(cluster, command, *words) as process:
            out, err = process.communicate(given, timeout=PATIENCE)
        return process.returncode, out.decode(), err.decode()
    servers = ["--bootstrap-server", cluster.bootstrap_servers]
    done = CliRunner().invoke(build(command), [command, *servers, *words], input=given)
    return done.exit_code, done.stdout, done.stderr


def test_produced_lines_are_consumed(cluster: LocalCluster, topic: str) -> None:
    cluster.create_topic(topic, 3)
    lines = b"".join(b"a:%d\tkey %d\tvalue %d\n" % (n, n % 7, n) for n in range(500))
    parts = ("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true")
    status, out, err = run(
        cluster, "produce", "--topic", topic, *parts, "--compression-codec", "zstd", "--json",
        given=lines,
    )  # fmt: skip
    assert (status, err) == (0, "")
    told = json.loads(out)
    assert (told["lines"], told["acknowledged"], told["lost"]) == (500, 500, [])
    reading = ("--topic", topic, "--from-beginning", "--max-messages", "500")
    shape = ("--formatter-property", "print.key=true", "--formatter-property", "print.headers=true")
    status, out, err = run(cluster, "consume", *reading, *shape)
    assert (status, err) == (0, "Processed a total of 500 messages\n")
    assert sorted(out.splitlines()) == sorted(lines.decode().splitlines())
    status, out, err = run(cluster, "consume", *reading, "--json")
    records = [json.loads(line) for line in out.splitlines()]
    assert sorted(int(r["headers"][0][1]) for r in records) == list(range(500))
    for partition, written in told["partitions"].items():
        mine = [r["offset"] for r in records if r["partition"] == int(partition)]
        assert mine == list(range(written["records"]))


def test_consume_ends_when_its_output_pipe_is_closed(cluster: LocalCluster, topic: str) -> None:
    cluster.create_topic(topic, 1)
    assert run(cluster, "produce", "--topic", topic, given=b"one\ntwo\nthree\n")[0] == 0
    with start(cluster, "consume", "--topic", topic, "--from-beginning") as process:
        out, err = cast("IO[bytes]", process.stdout), cast("IO[bytes]", process.stderr)
        assert [out.readline(), out.readline()] == [b"one\n", b"two\n"]
        out.close()
        # No more records arrive, so the process must notice the closed pipe without writing.
        assert process.wait(PATIENCE) == 0
        assert err.read() == b""


def test_consume_and_produce_end_after_a_signal(cluster: LocalCluster, topic: str) -> None:
    cluster.create_topic(topic, 1)
    with (
        start(cluster, "consume", "--topic", topic, "--from-beginning") as reader,
        start(cluster, "produce", "--topic", topic) as writer,
    ):
        cast("IO[bytes]", writer.stdin).write(b"kept\n" * 3)
        out = cast("IO[bytes]", reader.stdout)
        assert [out.readline() for _ in range(3)] == [b"kept\n"] * 3
        writer.send_signal(signal.SIGTERM)
        assert writer.wait(PATIENCE) == 0
        assert cast("IO[bytes]", writer.stderr).read() == b"interrupted after 3 lines\n"
        reader.send_signal(signal.SIGTERM)
        assert reader.wait(PATIENCE) == 0
        assert cast("IO[bytes]", reader.stderr).read() == b"Processed a total of 3 messages\n"


def test_produce_sends_lines_typed_on_a_terminal(cluster: LocalCluster, topic: str) -> None:
    cluster.create_topic(topic, 1)
    keyboard, terminal = pty.openpty()
    with start(cluster, "produce", "--topic", topic, stdin=terminal) as process:
        os.close(terminal)
        os.write(keyboard, b"typed\n\x04")
        out, err = process.communicate(timeout=PATIENCE)
    os.close(keyboard)
    assert (process.returncode, out, err) == (0, b">>", b"")
    status, text, _ = run(
        cluster, "consume", "--topic", topic, "--partition", "0", "--offset", "0",
        "--max-messages", "1",
    )  # fmt: skip
    assert (status, text) == (0, "typed\n")


def test_consume_and_produce_report_a_missing_topic(cluster: LocalCluster) -> None:
    status, out, err = run(cluster, "consume", "--topic", "nix", "--timeout-ms", "2000")
    assert (status, out) == (1, "")
    made = "Create it with: odradek topics create nix --bootstrap-server "
    assert f"topic nix doesn't exist. {made}" in err
    lost = run(cluster, "produce", "--topic", "nix", "--max-block-ms", "300", given=b"a\nb\n")
    assert lost[0] == 1
    assert "1 of 1 line was not acknowledged" in lost[2]


PATIENT = {"broker.session.timeout.ms": "20000"}


@pytest.mark.long
def test_commands_with_a_paused_broker(
    clusters: SharedClusters, topic: str, tmp_path: Path
) -> None:
    """Pause a broker that the controller fences after 20 s (`PATIENT`).

    With an earlier fence `broker-api-versions`, which starts in the meantime, might not list the
    broker. Sometimes the front door connects it to the paused broker first, which takes two
    seconds.
    """
    cluster = clusters.shared({"config": PATIENT})
    cluster.create_topic(topic, 6)
    quick = tmp_path / "client.properties"
    quick.write_text("default.api.timeout.ms=3000\n")
    lines = [b"line %d\n" % n for n in range(600)]
    first = run(cluster, "produce", "--topic", topic, given=b"".join(lines[:100]))
    assert first[0] == 0
    reader = start(cluster, "consume", "--topic", topic, "--from-beginning", "--max-messages",
                   "600", "--command-property", "request.timeout.ms=3000")  # fmt: skip
    with reader:
        heard = cast("IO[bytes]", reader.stdout).readline()
        cluster.pause(1)
        try:
            writer = start(cluster, "produce", "--topic", topic, "--request-timeout-ms", "3000",
                           "--batch-size", "200")  # fmt: skip
            with writer:
                cast("IO[bytes]", writer.stdin).write(b"".join(lines[100:]))
                status, out, err = run(cluster, "broker-api-versions", "--command-config",
                                       str(quick))  # fmt: skip
                blocks = out.split("\n)\n")
                assert status == 1, err
                assert sum("Produce(0): 0 to 13 [usable: 13]" in b for b in blocks) == 2, out + err
                (broken,) = [line for line in out.splitlines() if "ERROR" in line]
                assert f"{cluster.broker_addresses[1]} (id: 1 rack: null" in broken
                assert "ApiVersions of broker 1" in broken
                _, err_of_writer = writer.communicate(timeout=PATIENCE)
            assert writer.returncode == 0, err_of_writer
            rest, err_of_reader = reader.communicate(timeout=PATIENCE)
        finally:
            cluster.resume(1)
    assert reader.returncode == 0, err_of_reader
    found = Counter((heard + rest).splitlines(keepends=True))
    assert found == Counter(lines)
    deadline = time.monotonic() + PATIENCE
    while run(cluster, "broker-api-versions", "--command-config", str(quick))[0] != 0:
        assert time.monotonic() < deadline, "broker 1 is back and isn't seen"


def test_broker_api_versions_prints_json(cluster: LocalCluster) -> None:
    status, out, err = run(cluster, "broker-api-versions", "--json")
    assert (status, err) == (0, "")
    brokers = json.loads(out)["brokers"]
    assert [f"{b['host']}:{b['port']}" for b in brokers] == list(cluster.broker_addresses)
    for broker in brokers:
        assert broker["error"] is None
        apis = {a["name"]: a for a in broker["apis"]}
        assert apis["Metadata"]["usable"] == apis["Metadata"]["max"] == 13
        assert apis["AlterConfigs"]["problem"] == "not supported by this client"
