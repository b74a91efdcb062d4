"""Compare Kafka's tools with ours: groups, offsets, ACLs, users and quotas.

One JVM runs all of Kafka's tools.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop.group_members import QUICK_JVM, compiled
from tests.time_limits import HANG_S
from tests.volume import some
from typer.testing import CliRunner

import odradek as o
from odradek.cli import build
from odradek.testing import LocalCluster, jars
from odradek.testing.java import java_home

PROGRAM = Path(__file__).with_name("KafkaTools.java")
GROUPS, ACLS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "AclCommand"
CONFIGS = "kafka.admin.ConfigCommand"
TOOLS = "org.apache.kafka.tools."
HOUR = 3_600_000
BEGIN = 1_700_000_000_000
"""Timestamp of the first record; consecutive records are an hour apart."""
MODES = some(
    [
        ("--to-earliest",),
        ("--to-latest",),
        ("--to-current",),
        ("--to-offset", "3"),
        ("--to-offset", "99"),
        ("--shift-by", "2"),
        ("--shift-by", "-7"),
        ("--to-datetime", "2023-11-15T00:13:20.000"),
        ("--to-datetime", "2099-01-01T00:00:00.000"),
        ("--by-duration", "P30D"),
    ],
    5,
)


@pytest.fixture
def groups_and_file(
    cluster: LocalCluster, topic: str, tmp_path: Path
) -> Iterator[tuple[str, Path]]:
    """Create a topic, two groups that have read it partly and completely, a file of offsets."""
    settings = cluster.client_config()
    both = [o.TopicPartition(topic, n) for n in range(2)]
    reading = {**settings, "group.id": f"{topic}-busy", "auto.offset.reset": "earliest"}
    with o.Admin(settings) as admin, o.Consumer(reading) as consumer:
        admin.create_topics([o.NewTopic(topic, 2, 1, {"retention.ms": "-1"})])
        with o.Producer(settings) as producer:
            for n in range(10):
                time_ms = BEGIN + n // 2 * HOUR
                producer.send(topic, value=b"x", partition=n % 2, timestamp_ms=time_ms)
        admin.alter_group_offsets(f"{topic}-idle", {both[0]: 2, both[1]: 4})
        allowed = o.admin.AclBinding("TOPIC", topic, "User:alice", "READ")
        denied = o.admin.AclBinding("TOPIC", topic, "User:bob", "WRITE", "DENY", host="10.0.0.1")
        admin.create_acls([allowed, denied])
        admin.alter_user_scram_credentials(
            [o.admin.UserScramCredentialUpsertion(topic, "SCRAM-SHA-512", "a password", 5000)]
        )
        quotas = {"producer_byte_rate": 1048576.0, "request_percentage": 12.5}
        admin.alter_client_quotas({o.admin.ClientQuotaEntity(topic): quotas})
        consumer.subscribe([topic])
        read = 0
        while read < 10:
            read += len(consumer.poll(30.0))
        consumer.commit()
        file = tmp_path / "plan.csv"
        file.write_text(f"{topic},0,1\n{topic},1,99\n")
        yield topic, file


def kafka(cluster: LocalCluster, *commands: tuple[str, ...]) -> list[str]:
    """Return the output of each of Kafka's tools."""
    where = ("--bootstrap-server", cluster.bootstrap_servers)
    lines = ["\t".join((command[0], *where, *command[1:])) for command in commands]
    version = jars.TOOLS_OF.get(jars.DEFAULT_VERSION, jars.DEFAULT_VERSION)
    said = subprocess.run(
        [
            *(str(java_home() / "bin" / "java"), *QUICK_JVM),
            *("-cp", f"{jars.fetch(version)}/*:{compiled(PROGRAM, '')}", PROGRAM.stem),
        ],
        input="\n".join(lines).encode(),
        capture_output=True,
        timeout=HANG_S,  # 17 Java tools; CI's machine may be four times as slow
        check=True,
    ).stdout.decode()
    found = said.split("\n=== \n")[1:]
    assert len(found) == len(commands)
    return found


def odradek(cluster: LocalCluster, *words: str) -> str:
    where = ("--bootstrap-server", cluster.bootstrap_servers)
    done = CliRunner().invoke(build(words[0]), [*words, *where])
    assert done.exit_code == 0, done.stderr
    return done.stdout


def as_json(cluster: LocalCluster, *words: str) -> Any:
    return json.loads(odradek(cluster, *words, "--json"))


def rows(text: str, head: str) -> set[tuple[str, ...]]:
    """Return the rows of a table below the line that starts with `head`."""
    lines = [tuple(line.split()) for line in text.splitlines() if line.strip()]
    (at,) = [n for n, line in enumerate(lines) if line[:1] == (head,)]
    return set(lines[at + 1 :])


def test_odradek_and_kafkas_tools_print_the_same_facts_of_groups(
    cluster: LocalCluster, groups_and_file: tuple[str, Path]
) -> None:
    topic, file = groups_and_file
    idle, busy = f"{topic}-idle", f"{topic}-busy"
    reset = (GROUPS, "--reset-offsets", "--group", idle)
    scope = ("--topic", topic)
    said = kafka(
        cluster,
        (GROUPS, "--describe", "--group", idle, "--verbose"),
        (GROUPS, "--describe", "--group", busy, "--verbose"),
        (GROUPS, "--list", "--state"),
        (*reset, "--all-topics", "--to-current", "--dry-run", "--export"),
        (*reset, "--from-file", str(file), "--dry-run"),
        *((*reset, *scope, *mode, "--dry-run") for mode in MODES),
        (f"{TOOLS}{ACLS}", "--list", *scope),
        (CONFIGS, "--describe", "--entity-type", "users", "--entity-name", topic),
        (f"{TOOLS}GetOffsetShell", "--topic", topic, "--time", str(BEGIN + 1)),
    )
    for group, text in zip((idle, busy), said[:2], strict=True):
        assert rows(odradek(cluster, "groups", "describe", group), "GROUP") == rows(text, "GROUP")
    states = {(g, state) for g, _, _, state in rows(odradek(cluster, "groups", "list"), "GROUP")}
    mine = {row for row in rows(said[2], "GROUP") if row[0] in (idle, busy)}
    assert mine == {(idle, "Empty"), (busy, "Stable")}
    assert mine <= states  # groups of other tests may change their states in the meantime
    ours = ("groups", "reset-offsets", idle)
    exported = odradek(cluster, *ours, "--all-topics", "--to-current", "--export")
    assert sorted(exported.split()) == sorted(said[3].split())
    plan = odradek(cluster, *ours, "--from-file", str(file), "--dry-run")
    assert rows(plan, "GROUP") == rows(said[4], "GROUP")
    for mode, text in zip(MODES, said[5:], strict=False):
        plan = odradek(cluster, *ours, *scope, *mode, "--dry-run")
        assert rows(plan, "GROUP") == rows(text, "GROUP"), mode
    acls, users, offsets = said[-3:]
    found = as_json(cluster, "acls", "list", *scope)["acls"]
    assert {line.strip() for line in acls.splitlines() if "principal=" in line} == {
        f"(principal={a['principal']}, host={a['host']}, operation={a['operation']}, "
        f"permissionType={a['permission_type']})"
        for a in found
    }
    assert len(found) == 2
    (quota,) = as_json(cluster, "quotas", "describe", "--user", topic)["quotas"]
    for name, value in quota["quotas"].items():
        assert f"{name}={value}" in users
    (info,) = as_json(cluster, "users", "describe", topic)["users"][topic]
    assert f"{info['mechanism']}=iterations={info['iterations']}" in users
    listed = as_json(cluster, "offsets", "list", topic, "--time", str(BEGIN + 1))["offsets"]
    assert {f"{a['topic']}:{a['partition']}:{a['offset']}" for a in listed} == set(offsets.split())
