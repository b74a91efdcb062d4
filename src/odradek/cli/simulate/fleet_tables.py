"""Results of a simulated fleet as Parquet files, and the state from which a stopped run continues.

In: counts (`Load`) of groups of clients (`Slice`) that were simulated. Out, in a folder: `load`,
`recovery` and `tries` (.parquet) at the end, `unfinished.parquet` until then. The unfinished file
is replaced atomically, so it is valid even after a kill. Must not: mix results of several plans.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from odradek.simulation.measurements.fleet import Load
    from odradek.simulation.measurements.fleet_slices import FleetPlan, Slice

UNFINISHED = "unfinished.parquet"
_PLAN, _DONE = b"odradek.plan", b"odradek.done"


class OtherPlanError(Exception):
    """The output folder contains the state of an unfinished run with other options or code."""


class Book:
    """Results of a fleet so far, and which groups of clients remain; saved if a folder is given."""

    def __init__(self, plan: FleetPlan, folder: Path | None) -> None:
        from odradek.simulation.measurements.fleet import Load

        self.loads = [Load(case) for case in plan.cases]
        self.done: set[int] = set()
        self._slices = plan.slices()
        self._plan = json.dumps(plan.described(), sort_keys=True)
        self._folder = folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            if (folder / UNFINISHED).exists():
                self._take_up(folder / UNFINISHED)

    def todo(self) -> list[Slice]:
        """Return the groups of clients that aren't simulated yet."""
        return [part for part in self._slices if part.number not in self.done]

    def enter(self, parts: Sequence[Slice], loads: Sequence[Load]) -> None:
        """Add the counts of simulated groups of clients, and save the state."""
        for load in loads:
            next(own for own in self.loads if own.case == load.case).add(load)
        self.done.update(part.number for part in parts)
        if self._folder is not None:
            self._save(self._folder / UNFINISHED)

    def finish(self) -> None:
        """Write the three tables, and delete the file with the unfinished state."""
        if self._folder is None:
            return
        _replace(
            _table(self.loads, ("accepted", "refused", "metadata")), self._folder / "load.parquet"
        )
        _replace(_table(self.loads, ("back",)), self._folder / "recovery.parquet")
        _replace(_table(self.loads, ("tries",)), self._folder / "tries.parquet")
        (self._folder / UNFINISHED).unlink(missing_ok=True)

    def _save(self, file: Path) -> None:
        rows = [
            (index, *key, count)
            for index, load in enumerate(self.loads)
            for key, count in load.counts.items()
        ]
        columns = list(zip(*rows, strict=True)) or [()] * 5
        table = pa.table(dict(zip(("case", "what", "broker", "at", "count"), columns, strict=True)))
        notes = {_PLAN: self._plan.encode(), _DONE: json.dumps(sorted(self.done)).encode()}
        _replace(table.replace_schema_metadata(notes), file)

    def _take_up(self, file: Path) -> None:
        table = pq.read_table(file)
        notes = table.schema.metadata or {}
        if notes.get(_PLAN) != self._plan.encode():
            raise OtherPlanError(
                f"{file} belongs to another, unfinished run, "
                f"{notes.get(_PLAN, b'?').decode()}; finish that run with its own options and "
                "code, delete the file, or choose another folder"
            )
        self.done = set(json.loads(notes[_DONE]))
        for part in self._slices:
            if part.number in self.done:
                self.loads[part.case].clients += part.clients
        columns = (table.column(name).to_pylist() for name in table.column_names)
        for case, what, broker, at, count in zip(*columns, strict=True):
            self.loads[case].counts[what, broker, at] = count


def _table(loads: Sequence[Load], kinds: Sequence[str]) -> pa.Table:
    """Return the table of these kinds of counts; each row names its policy and setting."""
    from odradek.simulation.measurements.fleet import WINDOWS

    rows: dict[tuple[int, int, int], dict[str, int]] = {}
    for index, load in enumerate(loads):
        for (what, broker, at), count in load.counts.items():
            if what in kinds:
                rows.setdefault((index, broker, at), {})[what] = count
    keys = sorted(rows)
    columns: dict[str, list[object]] = {
        "policy": [loads[index].case.policy for index, _, _ in keys],
        "setting": [loads[index].case.setting for index, _, _ in keys],
    }
    if kinds == ("tries",):
        columns["tries"] = [at for _, _, at in keys]
    else:
        columns["broker"] = [broker for _, broker, _ in keys]
        scale, name = (1000, "back_s") if kinds == ("back",) else (WINDOWS, "window_s")
        columns[name] = [at / scale for _, _, at in keys]
    for kind in kinds:
        name = kind if len(kinds) > 1 else "clients"
        columns[name] = [rows[key].get(kind, 0) for key in keys]
    return pa.table(columns)


def _replace(table: pa.Table, file: Path) -> None:
    """Replace a file atomically, so that readers never see a part of it."""
    new = file.with_name(f".{file.name}.new")
    pq.write_table(table, new)
    new.replace(file)
