"""The commands of `cli.frame`, called as a shell would call them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from typer.testing import CliRunner

from odradek.cli import build


def run(*words: str) -> tuple[int, str, str]:
    """Exit status, stdout, stderr."""
    done = CliRunner().invoke(build(words[0]), [*words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def as_json(*words: str, status: int = 0) -> dict[str, Any]:
    """The one document of a command that ends so."""
    code, out, err = run(*words, "--json")
    assert code == status, err
    found: dict[str, Any] = json.loads(out)
    return found


def every_verb(topic: str, broker: int, directory: str) -> Sequence[tuple[str, int]]:
    """Lines that call each verb of topics, partitions, configs, logdirs and cluster, with the
    status that each ends with on a cluster that has this broker with this directory.
    """
    lines = f"""
        topics create {topic} --partitions 2 --config retention.ms=5000000
        topics list --topic {topic}
        topics describe {topic}
        topics alter {topic} --set retention.ms=6000000
        topics create-partitions {topic} --partitions 3
        topics delete-records {topic}:0=end --yes
        partitions list {topic} --offsets
        partitions reassign {topic}:0={broker} --dry-run
        partitions reassignments
        partitions elect-leaders --dry-run
        configs describe topic {topic}
        configs describe broker {broker} --all
        configs alter topic {topic} --delete retention.ms
        logdirs describe --broker {broker} --topic {topic}
        logdirs alter {topic}:0:{broker}={directory} --dry-run
        cluster describe
        cluster brokers
        cluster features
        cluster quorum
        topics delete {topic} --yes
    """
    failing = """
        cluster set-features metadata.version=1 --downgrade --dry-run
        cluster unregister 77 --yes
    """
    good = [(line.strip(), 0) for line in lines.strip().splitlines()]
    return good + [(line.strip(), 1) for line in failing.strip().splitlines()]
