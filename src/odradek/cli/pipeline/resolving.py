"""Run `odradek pipeline resolve`: show which part of a batch was written, and finish it.

In: a checkpoint, the sink's options. Out: a table or JSON, an exit status. Must not: lose or repeat
rows without the flag for it.
"""

from __future__ import annotations

import json as jsonlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from odradek.cli.console.properties import refuse
from odradek.cli.frame.results import counted
from odradek.cli.frame.settings import USUAL, Flags, client_settings
from odradek.cli.pipeline.checkpoint import local_path, look
from odradek.cli.pipeline.document import read
from odradek.cli.pipeline.lock import locked
from odradek.cli.pipeline.spec import Pipeline, Sink, parse
from odradek.common.config import PRODUCER
from odradek.runtime.system_clock import SystemClock
from odradek.spark.options.option_table import STREAM
from odradek.spark.sink.resolving import BatchState, Remedy, Resolution, resolve
from odradek.spark.sink.sink_clients import make_producer, prepared_by
from odradek.spark.sink.sink_options import SinkOptions, parse_sink_options

STATUS = {BatchState.PARTLY: 1}


def resolved(
    checkpoint: Path | None,
    query: str | None,
    batch: int | None,
    spec: Path | None,
    flags: Flags,
    names: Mapping[str, str],
    *,
    accept_loss: bool,
    repeat: bool,
    json: bool,
) -> int:
    """Carry out the command; return its exit status."""
    if accept_loss and repeat:
        refuse("--accept-loss can't be given with --repeat")
    choice = Remedy.NONE
    if accept_loss or repeat:
        choice = Remedy.ACCEPT_LOSS if accept_loss else Remedy.REPEAT
    if (checkpoint is None) is (query is None):
        refuse("either CHECKPOINT or --query is required, not both")
    if checkpoint is None and spec is not None:
        refuse("--spec needs CHECKPOINT, which identifies the sink")
    if checkpoint is not None:
        if batch is not None:
            refuse("--batch can only be given with --query: CHECKPOINT has the batch")
        query = query_of(checkpoint)
    if checkpoint is not None and spec is not None:
        options = _of_spec(spec, checkpoint)
    else:
        options = _of_flags(flags, names)
    with locked([] if checkpoint is None else [str(checkpoint)]):
        if checkpoint is not None:
            batch = look(str(checkpoint)).repeats
        found = resolve(
            *(options, str(query), batch, choice),
            make=make_producer,
            prepared=prepared_by,
            clock=SystemClock(),
        )
    if json:
        typer.echo(jsonlib.dumps(document(found), indent=2))
    else:
        for line in lines(found):
            typer.echo(line)
    return STATUS.get(found.outcome, 0)


def query_of(checkpoint: Path) -> str:
    """Return the id of a checkpoint's query."""
    try:
        return str(jsonlib.loads((checkpoint / "metadata").read_text().splitlines()[-1])["id"])
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        refuse(
            f"{checkpoint} is not the checkpoint of a query (its file metadata can't be read: "
            f"{type(error).__name__}: {error}). If it isn't a local folder, pass --query with the "
            "id in its file metadata"
        )


def _of_flags(flags: Flags, names: Mapping[str, str]) -> SinkOptions:
    given = client_settings(flags, PRODUCER, USUAL).given
    kafka = {f"kafka.{name}": value for name, value in given.items()}
    return parse_sink_options({**kafka, **names, "delivery": "exactly_once"}, STREAM)


def _of_spec(spec: Path, checkpoint: Path) -> SinkOptions:
    pipeline = parse(read(spec, os.environ))
    sinks = [sink for sink in pipeline.sinks.values() if _is_at(pipeline, sink, checkpoint)]
    if not sinks:
        refuse(f"{spec} has no sink with the checkpoint {checkpoint}")
    return parse_sink_options(sinks[0].options, STREAM)


def _is_at(pipeline: Pipeline, sink: Sink, checkpoint: Path) -> bool:
    path = local_path(pipeline.checkpoint(sink))
    return path is not None and path.resolve() == checkpoint.resolve()


def document(found: Resolution) -> dict[str, Any]:
    """Return the object that `--json` prints."""
    return {
        "query": found.query,
        "batch": found.batch,
        "outcome": found.outcome.value,
        "committed_rows": found.rows(committed=True),
        "missing_rows": found.rows(committed=False),
        "parts": [
            {
                "partition": part.partition,
                "transactional_id": part.transactional_id,
                "rows": part.rows,
                "committed": part.committed,
            }
            for part in found.parts
        ],
    }


def lines(found: Resolution) -> list[str]:
    """Return the result as lines of text."""
    shown = [
        f"sink partition {part.partition}: {counted(part.rows, 'row')} "
        f"{'committed' if part.committed else 'not committed'} ({part.transactional_id})"
        for part in found.parts
    ]
    batch = "The sink" if found.batch is None else f"Batch {found.batch}"
    there = counted(found.rows(committed=True), "row")
    lost = found.rows(committed=False)
    missing = counted(lost, "row") if lost else "rows of tasks that had not written yet, if any"
    match found.outcome:
        case BatchState.NOTHING:
            text = f"{batch} has no committed rows: start the query, which writes the batch."
        case BatchState.COMPLETE:
            text = (
                f"{batch} is completely committed: start the query, which continues after it. If "
                "it fails because it repeats the batch with other rows, run this command again "
                "with --accept-loss (the committed rows are the batch) or with --repeat (the other "
                "rows are written in addition)."
            )
        case BatchState.ACCEPTED:
            text = f"{batch} counts as complete: start the query, which continues after it."
        case BatchState.REPEATED:
            text = f"{batch} will be written again: start the query."
        case BatchState.PARTLY:
            text = (
                f"{batch} is partly committed. If the inputs haven't changed, start the query "
                "with the same settings and cores: it writes the missing rows. Otherwise run this "
                f"command again with --accept-loss (lost: {missing}) or with --repeat (written a "
                f"second time: {there})."
            )
    return [*shown, text]
