"""Files, ports and command lines of the brokers that odradek.testing starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.common.types import Address
from odradek.testing.brokers import broker
from odradek.testing.brokers.broker import BROKER_CLASS, JavaSetup, LocalBroker, free_addresses


def test_console_tools_that_a_version_lacks_come_from_another_version(tmp_path: Path) -> None:
    java = JavaSetup(tmp_path, tmp_path / "jars", tmp_path, tools=lambda: tmp_path / "fetched")
    java.archive.touch()
    tool = java.command("org.apache.kafka.tools.TopicCommand", [], tmp_path / "log4j")
    # A class-data archive is only valid for the jars that it was created from.
    assert f"{tmp_path}/fetched/*" in tool
    assert "-Xshare:auto" not in tool
    for own in (BROKER_CLASS, "kafka.tools.StorageTool"):
        command = java.command(own, [], tmp_path / "log4j")
        assert f"{tmp_path}/jars/*" in command
        assert "-Xshare:auto" in command


def test_formatted_storage_is_copied_with_new_ids(tmp_path: Path) -> None:
    source = tmp_path / "kept"
    (source / "__cluster_metadata-0").mkdir(parents=True)  # Kafka 4.4 and later create this folder
    (source / "__cluster_metadata-0" / "00.checkpoint").write_bytes(b"\0snapshot")
    (source / "meta.properties").write_text("#then\nversion=1\ncluster.id=x\nnode.id=0\n")
    here = Address("127.0.0.1", 1)
    broker = LocalBroker(7, tmp_path / "broker-7", here, here, None)
    broker.directory.mkdir()
    broker.copy_format_from(source, "ours")
    data = broker.directory / "data"
    assert (data / "__cluster_metadata-0" / "00.checkpoint").read_bytes() == b"\0snapshot"
    lines = (data / "meta.properties").read_text().splitlines()
    assert lines[:3] == ["version=1", "cluster.id=ours", "node.id=7"]
    assert lines[3].startswith("directory.id=")


def test_listeners_of_a_cluster_never_share_a_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka rejects such listeners, and the system may return the same free port twice."""
    named = iter([5, 5, 6, 5, 7])
    monkeypatch.setattr(broker, "free_port", lambda host: next(named))
    found = free_addresses(["127.9.9.1", "127.9.9.1", "127.9.9.2"])
    assert [str(one) for one in found] == ["127.9.9.1:5", "127.9.9.1:6", "127.9.9.2:7"]
