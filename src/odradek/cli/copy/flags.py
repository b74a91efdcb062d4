"""The flags of `odradek copy`, one line of help each.

In: nothing. Out: annotated types for the command's signature. Must not: check what options of
clients may be; `common.config` does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from odradek.cli.frame.settings import BOOTSTRAP, COMMAND_CONFIG, PROFILE


def _words(text: str, *spellings: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(*spellings, metavar="KEY=VALUE", help=text)
    return option


Source = Annotated[str, typer.Argument(help="The topic to read.")]
Destination = Annotated[str, typer.Argument(help="The topic to write to.")]
FromServer = Annotated[
    str | None,
    typer.Option(
        "--from-bootstrap-server",
        "--bootstrap-server",
        help=f"The source's bootstrap servers, host:port (or {BOOTSTRAP}).",
    ),
]
FromProfile = Annotated[
    str | None,
    typer.Option("--from-profile", "--profile", help=f"The source's profile (or {PROFILE})."),
]
ToProfile = Annotated[
    str | None, typer.Option(help="The destination's profile (default: the same cluster).")
]
ToServer = Annotated[
    str | None,
    typer.Option(help="The destination's bootstrap servers (default: the same cluster)."),
]
FromConfig = Annotated[
    Path | None,
    typer.Option(
        "--from-command-config",
        "--command-config",
        help=f"A Java properties file with options of the source's clients (or {COMMAND_CONFIG}).",
    ),
]
ToConfig = Annotated[
    Path | None,
    typer.Option(
        help="A Java properties file with options of the destination's clients (default, without "
        "another address: those of the source)."
    ),
]
FromProperty = Annotated[
    list[str] | None,
    _words(
        "An option of the source's clients; may be repeated.",
        "--from-command-property",
        "--command-property",
    ),
]
ToProperty = Annotated[
    list[str] | None, _words("An option of the destination's clients; may be repeated.")
]
Offset = Annotated[str, typer.Option(help="Where the first run starts, as in `odradek consume`.")]
Until = Annotated[
    str | None,
    typer.Option(help="Where to stop, as in `odradek consume` (default: end)."),
]
Follow = Annotated[bool, typer.Option("--follow", help="Never stop.")]
Create = Annotated[
    bool,
    typer.Option("--create", help="If the destination doesn't exist, create it like the source."),
]
Restart = Annotated[
    bool,
    typer.Option("--restart", help="Start at --offset again, even if records were copied before."),
]
AtLeastOnce = Annotated[
    bool,
    typer.Option(
        "--at-least-once",
        help="Use no transactions: after a kill, the last records may be duplicated.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")]
