"""Call the commands of `cli.frame` as a shell does."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.verb_tree import verbs
from typer.testing import CliRunner

from odradek import Admin, Producer, TopicPartition
from odradek.cli import build


def run(*words: str) -> tuple[int, str, str]:
    """Run a command line and return its exit status, stdout and stderr."""
    done = CliRunner().invoke(build(words[0]), [*words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def as_json(*words: str, status: int = 0) -> dict[str, Any]:
    """Run a command with `--json`, check its exit status and return its document."""
    code, out, err = run(*words, "--json")
    assert code == status, err
    found: dict[str, Any] = json.loads(out)
    return found


def every_subcommand(topic: str, broker: int, directory: str) -> Sequence[tuple[str, int]]:
    """Return command lines that call each subcommand for a cluster, with their exit statuses.

    The cluster must have this broker with this directory, and a group and a transactional id named
    like the topic (see `create_group_and_transactional_id`).
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
        offsets list {topic} --time earliest
        groups list
        groups describe {topic}
        groups members {topic}
        groups lag {topic}
        groups reset-offsets {topic} --topic {topic} --to-latest --yes
        groups delete-offsets {topic} --topic {topic}:0 --yes
        groups remove-members {topic} --yes
        groups delete {topic} --yes
        acls create --allow-principal User:{topic} --operation read --topic {topic}
        acls list --topic {topic}
        acls delete --topic {topic} --yes
        users create {topic} --password-visible a-secret
        users alter {topic} --password-visible another
        users list
        users describe {topic}
        users delete {topic} --yes
        quotas alter --user {topic} --set producer_byte_rate=5000000
        quotas list
        quotas describe --user {topic}
        quotas alter --user {topic} --unset producer_byte_rate
        transactions list
        transactions describe {topic}
        transactions producers {topic}:0
        transactions hanging --topic {topic}
        transactions abort {topic} --yes
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
    every = good + [(line.strip(), 1) for line in failing.strip().splitlines()]
    assert {" ".join(line.split()[:2]) for line, _ in every} == set(verbs())
    return every


def create_group_and_transactional_id(admin: Admin, settings: dict[str, Any], topic: str) -> None:
    """Create an empty group with a committed offset, and a transactional id."""
    admin.alter_group_offsets(topic, {TopicPartition(topic, 0): 0})
    with Producer(settings, transactional_id=topic) as producer:
        producer.init_transactions(timeout=30)


def walk(topic: str, broker: int, directory: str, *flags: str, prepare: Callable[[], None]) -> None:
    """Call every subcommand; `prepare` is called once the topic exists.

    Read-only subcommands are repeated until they succeed, because brokers apply what the controller
    has written a moment later.
    """
    changing = verbs()
    for turn, (line, status) in enumerate(every_subcommand(topic, broker, directory)):
        end = time.monotonic() + 10.0
        code, out, err = run(*line.split(), *flags)
        while code != status and not changing[" ".join(line.split()[:2])]:
            assert time.monotonic() < end, f"{line}: {err}"
            time.sleep(0.1)
            code, out, err = run(*line.split(), *flags)
        assert code == status, f"{line}: {err}"
        assert (out if status == 0 else err).strip(), line
        if turn == 0:
            prepare()
