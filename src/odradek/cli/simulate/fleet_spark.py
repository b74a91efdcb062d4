"""Run `odradek simulate fleet --spark`: a session for as long as slices are simulated.

In: a plan, slices, a master. Out: loads after each wave of tasks. The session and its tasks end
after the last wave, or if the caller stops (Ctrl-C). Must not: store loads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from odradek.cli.frame.spark_session import spark_session

if TYPE_CHECKING:
    from odradek.simulation.measurements.fleet import Load
    from odradek.simulation.measurements.fleet_slices import FleetPlan, Slice


def on_spark(
    plan: FleetPlan, todo: list[Slice], master: str | None, shards: int | None
) -> Iterator[tuple[list[Slice], list[Load]]]:
    """Simulate slices on Spark; yield slices and their loads after each wave of tasks."""
    from odradek.spark.analytics.fleet_shards import default_shards, simulate_shards

    with spark_session("odradek-fleet", master) as session:
        yield from simulate_shards(session, plan, todo, shards or default_shards(session))
