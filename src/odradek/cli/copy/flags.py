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
        help=f"The source's host:port (or {BOOTSTRAP}).",
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
    str | None, typer.Option(help="The destination's host:port (default: the same cluster).")
]
FromConfig = Annotated[
    Path | None,
    typer.Option(
        "--from-command-config",
        "--command-config",
        help=f"Options of the source's clients, in Java's properties form (or {COMMAND_CONFIG}).",
    ),
]
ToConfig = Annotated[
    Path | None,
    typer.Option(
        help="Options of the destination's clients (default, where no other address is given: "
        "those of the source)."
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
Offset = Annotated[
    str, typer.Option(help="Where the first run begins: a place as `odradek consume` has them.")
]
Until = Annotated[
    str | None,
    typer.Option(help="Where it ends: a place as `odradek consume` has them (default: end)."),
]
Follow = Annotated[bool, typer.Option("--follow", help="Go on for ever instead.")]
Create = Annotated[
    bool, typer.Option("--create", help="Make the destination as the source is if it isn't there.")
]
Restart = Annotated[
    bool, typer.Option("--restart", help="Begin at --offset, whatever was copied before.")
]
AtLeastOnce = Annotated[
    bool,
    typer.Option("--at-least-once", help="No transactions: a kill may double what came last."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")]
