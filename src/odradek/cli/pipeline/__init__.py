"""Commands of `odradek pipeline`: run a file of sources, SQL and sinks as streaming queries.

In: a SPEC, which is YAML (see `spec`). Out: queries of plain Structured Streaming that run until
they are stopped, their progress as a live view or JSON lines, an exit status. Must not: replace
Spark's declarative pipelines; those run with `spark-pipelines run`, and the source and sink work
there.

A SPEC is processed by `document` (YAML with lines), `spec` (checked values), `graph` (Spark: views
and writers) and `running` (queries until their end); `progress` and `outages` convert the reports
of Spark and the clients to values, and `display` shows them. `resolving` finishes a batch that its
query can't repeat.

The format isn't that of Spark's declarative pipelines, because flows there end by themselves, can
only be stopped abruptly, and reject keys of other sources.
"""

from __future__ import annotations

import json as jsonlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from odradek.cli.console.waiting import ending
from odradek.cli.frame.commands import Bootstrap, CommandConfig, CommandProperty, ProfileName
from odradek.cli.frame.overviews import overview
from odradek.cli.frame.results import as_document
from odradek.cli.frame.settings import Flags

app = overview("Run SQL from topics to topics, files or tables, with Spark.")

STOP_TIMEOUT = 60.0

SpecPath = Annotated[Path, typer.Argument(metavar="SPEC", help="A YAML file; see docs/spark.md.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Log = Annotated[
    Path | None,
    typer.Option(help="Where to write Spark's own log (default: spark.log in the storage folder)."),
]


@app.command()
def plan(spec: SpecPath, json: Json = False, log: Log = None) -> None:
    """Check a pipeline, and show what would run and where it would continue.

    Nothing is written and no query starts. The exit status is 0 if the pipeline could start,
    otherwise 2; each problem is reported with its line.
    """
    with _ending(json=json):
        from odradek.cli.pipeline.document import read
        from odradek.cli.pipeline.planning import describe
        from odradek.cli.pipeline.spec import parse

        pipeline = parse(read(spec, os.environ))
        found = describe(pipeline, log=log, say=partial(typer.echo, err=True))
        if json:
            typer.echo(jsonlib.dumps(found.to_dict(), indent=2))
        else:
            for line in found.lines():
                typer.echo(line)


@app.command()
def run(
    spec: SpecPath,
    json: Json = False,
    log: Log = None,
    stop_timeout: Annotated[
        float,
        typer.Option(min=0.0, help="Seconds that a running batch has to finish after SIGTERM."),
    ] = STOP_TIMEOUT,
) -> None:
    """Run a pipeline until it is stopped, or until its flows have finished.

    SIGTERM and Ctrl-C stop it after the running batches; a second signal stops it at once. Exit
    statuses: 0 finished, or stopped by SIGTERM after a batch, 1 a flow failed, 2 it couldn't start,
    130 Ctrl-C, 143 SIGTERM within a batch. A batch that was interrupted is reported, and repeated
    by the next run.
    """
    with _ending(json=json):
        from odradek.cli.pipeline.display import JsonLines, PipelineView
        from odradek.cli.pipeline.document import read
        from odradek.cli.pipeline.running import Running, Stop
        from odradek.cli.pipeline.spec import parse

        pipeline = parse(read(spec, os.environ))
        display = JsonLines() if json else PipelineView(pipeline)
        with display, Stop() as stop:
            status = Running(pipeline, display, stop, log=log, stop_timeout=stop_timeout).run()
    raise typer.Exit(status)


@app.command()
def resolve(
    checkpoint: Annotated[
        Path | None,
        typer.Argument(metavar="CHECKPOINT", help="The checkpoint folder of the query."),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(
            help="Instead of CHECKPOINT: the jobId of a batch job, or the id of the query, which "
            "is in the file metadata of its checkpoint."
        ),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(min=0, help="With --query: the batch that is repeated (default: the newest)."),
    ] = None,
    spec: Annotated[
        Path | None,
        typer.Option(help="The pipeline file of the query; the sink's options are read from it."),
    ] = None,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    command_property: CommandProperty = None,
    profile: ProfileName = None,
    transactional_id_prefix: Annotated[
        str, typer.Option(help="The sink's option transactionalIdPrefix.")
    ] = "odradek",
    sink_name: Annotated[str, typer.Option(help="The sink's option sinkName.")] = "sink",
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss", help="Treat the batch as complete; its missing rows are lost."
        ),
    ] = False,
    repeat: Annotated[
        bool,
        typer.Option(
            "--repeat",
            help="Write the whole batch again; rows that are already committed are duplicated.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Finish a batch that an exactly-once query can't repeat, because its rows have changed.

    Stop the query first. The command commits all transactions of the batch that are still open. If
    a part of the batch was aborted, it prints what each choice loses or repeats, and you choose
    one. Exit statuses: 0 the query can be started, 1 a choice is needed, or the cluster can't be
    reached, 2 wrong use.

    Example: odradek pipeline resolve state/checkpoints/copy --bootstrap-server host:9092
    """
    with _ending(json=json), ending("odradek pipeline resolve"), as_document(json=json):
        from odradek.cli.pipeline.resolving import resolved

        flags = Flags(bootstrap_server, command_config, tuple(command_property or ()))
        raise typer.Exit(
            resolved(
                *(checkpoint, query, batch, spec, replace(flags, profile=profile)),
                {"transactionalIdPrefix": transactional_id_prefix, "sinkName": sink_name},
                accept_loss=accept_loss,
                repeat=repeat,
                json=json,
            )
        )


@contextmanager
def _ending(*, json: bool) -> Iterator[None]:
    """Convert errors that prevent a pipeline's start to messages and exit status 2."""
    from odradek.cli.pipeline.document import SpecError
    from odradek.common.errors import KafkaError

    try:
        with as_document(SpecError, ImportError, KafkaError, OSError, json=json):
            yield
    except SpecError as error:
        _fail(str(error))
    except ImportError as error:
        _fail(f"{error}; pipelines need pip install 'odradek[pipelines]'")
    except (KafkaError, OSError) as error:
        _fail(f"odradek pipeline: {error}")


def _fail(message: str) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(2)
