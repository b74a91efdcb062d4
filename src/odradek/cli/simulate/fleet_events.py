"""Write the events of some clients of a fleet as files, as `ODRADEK_EVENTS_DIR` does.

In: a plan, a folder. Out: one file of JSON lines for each case, in the format of real clients. The
clients are simulated again for these files: a listener doesn't change the behaviour of a client.
Must not: write more events for a larger fleet.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from odradek.common.events import Event, Listener, event_line

if TYPE_CHECKING:
    from odradek.simulation.measurements.fleet import Case
    from odradek.simulation.measurements.fleet_slices import FleetPlan

HOST = "simulated"


def write_events(plan: FleetPlan, folder: Path, size: int) -> list[Path]:
    """Write the events of `size` clients of each case."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for index, case in enumerate(plan.cases):
        files.append(folder / f"events-fleet-{index + 1}.jsonl")
        _write(case, plan.clients, size, files[-1])
    return files


def _write(case: Case, clients: int, size: int, path: Path) -> None:
    from odradek.simulation.measurements.fleet import simulate
    from odradek.simulation.measurements.fleet_slices import sample
    from odradek.simulation.world.world import EPOCH

    label = "-".join(word for word in (case.policy, case.setting.replace(" ", "-")) if word)
    with path.open("wb") as file:

        def listener(number: int) -> Listener:
            def listen(event: Event) -> None:
                file.write(event_line(event, EPOCH + event.at, HOST, number, f"{label}-{number}"))

            return listen

        simulate(case, sample(clients, size), listener)
