"""`odradek cluster start --simulated`: brokers without Java, for as long as the command runs.

In: a number of brokers, a port, topics. Out: the bootstrap address on standard output; the command
then runs until Ctrl-C or SIGTERM. Must not: write a file; `odradek cluster stop` doesn't affect it.
"""

from __future__ import annotations

import json as jsonlib
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any, NoReturn

import typer

from odradek.testing.errors import ClusterStartError
from odradek.testing.fake.fake_cluster import FakeCluster

TAKEN = (
    "port {port} is in use by another program (perhaps other brokers); use --port 0 for any free "
    "port"
)


def serve(
    brokers: int, port: int, topics: Sequence[str], *, auto_create_topics: bool, json: bool
) -> None:
    """Run a cluster until it is stopped.

    Exit statuses: 0 after SIGTERM, 130 after Ctrl-C, 1 if it can't start, 2 for wrong use.
    """
    done = threading.Event()
    came: list[int] = []

    def end(number: int, _: Any) -> None:
        came.append(number)
        done.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    try:
        cluster = FakeCluster(
            brokers, topics=topics, port=port, auto_create_topics=auto_create_topics
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    try:
        with cluster:
            _show(cluster, json=json)
            done.wait()
    except ClusterStartError as error:
        _fail(TAKEN.format(port=port) if "in use" in str(error) else str(error))
    if came[0] == signal.SIGINT:
        raise typer.Exit(128 + signal.SIGINT)


def _show(cluster: FakeCluster, *, json: bool) -> None:
    addresses = cluster.addresses
    if json:
        brokers = [{"id": i, "address": address} for i, address in addresses.items()]
        told = {
            "running": True,
            "simulated": True,
            "bootstrap_servers": cluster.bootstrap_servers,
            "cluster_id": cluster.cluster_id,
            "brokers": brokers,
        }
        typer.echo(jsonlib.dumps(told))
    else:
        typer.echo(f"bootstrap servers  {cluster.bootstrap_servers}")
        typer.echo(f"cluster id         {cluster.cluster_id}")
        for i, address in addresses.items():
            typer.echo(f"broker {i:<12}{address}  simulated")
        typer.echo("Press Ctrl-C to stop", err=True)
    sys.stdout.flush()


def _fail(message: str) -> NoReturn:
    typer.echo(f"odradek cluster: {message}", err=True)
    raise typer.Exit(1)
