"""Compare Odradek's console tools with Kafka's: records of either, and facts of a cluster."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from base64 import urlsafe_b64encode
from pathlib import Path
from uuid import UUID

import pytest
from tests.time_limits import HANG_S
from typer.testing import CliRunner

from odradek.cli import build
from odradek.protocol.api_keys import GENERATED
from odradek.testing import LocalCluster

LINES = b"".join(
    [
        b"h1:v1,h2:v2\tkey\tvalue\n",
        b"h1:NULL\tNULL\tno key\n",
        b"NULL\ttombstone\tNULL\n",
        b"NULL\t\t\n",
        b"h:x:y\tk\tv\twith\ttabs\r\n",
        "ö:ü\tflüge\t✈ → JFK\n".encode(),
        *(b"n:%d\tk%d\tvalue %d\n" % (n, n % 5, n) for n in range(300)),
    ]
)
READER = [
    "--reader-property", "parse.key=true", "--reader-property", "parse.headers=true",
    "--reader-property", "null.marker=NULL",
]  # fmt: skip
FORMATTER = [
    word
    for part in ("print.timestamp=true", "print.partition=true", "print.offset=true",
                 "print.headers=true", "print.key=true", "key.separator=|", "null.literal=NIL")
    for word in ("--formatter-property", part)
]  # fmt: skip
READING = ["--from-beginning", "--max-messages", "306", *FORMATTER]


def odradek(command: str, cluster: LocalCluster, *words: str, given: bytes = b"") -> str:
    servers = ["--bootstrap-server", cluster.bootstrap_servers]
    line = [*command.split(), *servers, *words]
    if command == "consume":  # consume writes to the process's file descriptor
        program = Path(sys.executable).parent / "odradek"
        read = subprocess.run([program, *line], capture_output=True, check=True, timeout=HANG_S)
        return read.stdout.decode()
    done = CliRunner().invoke(build(line[0]), line, input=given)
    assert done.exit_code == 0, done.stderr
    return done.stdout_bytes.decode()


def kafka(main: str, cluster: LocalCluster, *words: str, given: bytes | None = None) -> str:
    servers = ["--bootstrap-server", cluster.bootstrap_servers]
    return cluster.run_tool(f"org.apache.kafka.tools.{main}", [*servers, *words], given=given)


def test_both_tools_read_and_write_the_same_lines(cluster: LocalCluster, topic: str) -> None:
    ours, theirs = f"{topic}-ours", f"{topic}-theirs"
    for name in (ours, theirs):
        cluster.create_topic(name, partitions=1)
    odradek("produce", cluster, "--topic", ours, *READER, given=LINES)
    kafka("ConsoleProducer", cluster, "--topic", theirs, *READER, given=LINES)
    shown = {
        name: odradek("consume", cluster, "--topic", name, *READING) for name in (ours, theirs)
    }
    assert shown[ours] == kafka("consumer.ConsoleConsumer", cluster, "--topic", ours, *READING)
    untimed = [re.sub(r"CreateTime:\d+", "", text) for text in shown.values()]
    assert untimed[0] == untimed[1]
    assert "h:x:y|k|v\twith\ttabs" in untimed[0]
    assert "NO_HEADERS|tombstone|NIL" in untimed[0]


@pytest.mark.long  # shorter tests: integration/test_admin_commands.py
def test_both_tools_print_the_same_facts_of_topics_configs_and_directories(
    cluster: LocalCluster, topic: str
) -> None:
    """Compare the output of kafka-topics, kafka-configs and kafka-log-dirs with ours."""
    made = ("--partitions", "2", "--config", "retention.ms=5000000", "--config=segment.ms=60000")
    odradek("topics create", cluster, topic, *made)
    (ours,) = json.loads(odradek("topics describe", cluster, topic, "--json"))["topics"]
    topic_id = urlsafe_b64encode(UUID(ours["topic_id"]).bytes).decode().rstrip("=")
    head, *lines = kafka("TopicCommand", cluster, "--describe", "--topic", topic).splitlines()
    theirs = facts(head)
    assert theirs["TopicId"] == topic_id
    assert theirs["PartitionCount"] == str(ours["partition_count"])
    assert theirs["ReplicationFactor"] == str(ours["replication_factor"])
    assert dict(one.split("=", 1) for one in theirs["Configs"].split(",")) == ours["configs"]
    assert [
        [facts(line)[k] for k in ("Partition", "Leader", "Replicas", "Isr")] for line in lines
    ] == [
        [
            str(p["partition"]),
            str(p["leader"]),
            *(",".join(map(str, p[k])) for k in ("replicas", "isr")),
        ]
        for p in ours["partitions"]
    ]
    entity = ("--describe", "--entity-type", "topics", "--entity-name", topic)
    told = cluster.run_tool(
        "kafka.admin.ConfigCommand", ["--bootstrap-server", cluster.bootstrap_servers, *entity]
    )
    (one,) = json.loads(odradek("configs describe", cluster, "topic", topic, "--json"))["configs"]
    reference = re.findall(r"^  (\S+)=(\S+) sensitive=(\w+) synonyms", told, re.MULTILINE)
    assert {(e["name"], e["value"], str(e["sensitive"]).lower()) for e in one["configs"]} == set(
        reference
    )
    told = kafka("LogDirsCommand", cluster, "--describe", "--topic-list", topic)
    mine = json.loads(odradek("logdirs describe", cluster, "--topic", topic, "--json"))["log_dirs"]
    (broker,) = json.loads(told.splitlines()[-1])["brokers"]
    assert [(broker["broker"], d["logDir"], d["error"]) for d in broker["logDirs"]] == [
        (d["broker"], d["path"], d["error"]) for d in mine
    ]
    assert {
        (p["partition"], p["size"], p["offsetLag"], p["isFuture"])
        for d in broker["logDirs"]
        for p in d["partitions"]
    } == {
        (f"{r['topic']}-{r['partition']}", r["size"], r["offset_lag"], r["future"])
        for d in mine
        for r in d["replicas"]
    }


def facts(line: str) -> dict[str, str]:
    r"""Parse `Topic: x\tPartition: 0` into names and values."""
    return {name: value.strip() for name, _, value in (p.partition(":") for p in line.split("\t"))}


NEWER = (
    *("ApiVersions(18): ", "TxnOffsetCommit(28): ", "DeleteGroups(42): "),
    "StreamsGroupDescribe(89): ",
)
"""APIs with a version in 4.4 that 4.3's tool doesn't know."""


def test_both_tools_print_the_same_api_versions(cluster: LocalCluster) -> None:
    ours = odradek("broker-api-versions", cluster).splitlines()
    theirs = kafka("BrokerApiVersionsCommand", cluster).splitlines()
    assert ours[0] == theirs[0]
    assert len(ours) > 70
    # 4.3's tool doesn't know the APIs of 4.4, and 4.4's tool isn't on Maven Central.
    newer = [line for line in ours if "(93): " in line or "(94): " in line]
    ours = [line for line in ours if line not in newer]
    theirs = [line for line in theirs if "(93): " not in line and "(94): " not in line]
    assert len(newer) == 2
    for mine, reference in zip(ours, theirs, strict=True):
        if "[unusable: not supported by this client]" in mine or mine.strip().startswith(NEWER):
            assert mine.partition(" [")[0] == reference.partition(" [")[0]
        else:
            assert mine == reference
    # A broker without a metrics receiver doesn't offer these APIs.
    offered = GENERATED - {"GetTelemetrySubscriptions", "PushTelemetry"}
    assert sum("[usable: " in line for line in (*ours, *newer)) == len(offered)
