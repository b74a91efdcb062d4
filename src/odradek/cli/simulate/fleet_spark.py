"""Run `odradek simulate fleet --spark`: a session for as long as clients are simulated.

In: a plan, parts of the fleet, a master. Out: counts per wave of tasks. The session and tasks end
after the last wave, or if the caller stops (Ctrl-C). Must not: store counts.
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
    """Simulate parts of the fleet on Spark; yield parts and counts after each wave of tasks."""
    from odradek.spark.analytics.fleet_shards import default_shards, simulate_shards

    with spark_session("odradek-fleet", master) as session:
        yield from simulate_shards(session, plan, todo, shards or default_shards(session))
