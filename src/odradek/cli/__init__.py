"""The `odradek` command. Each subcommand is a module of its own, imported only when it is called.

In: the command line. Out: an exit status. Must not: import Spark, Arrow or a command module to
print help; `COMMANDS` contains all texts of the overview.

To add a command, write a module with a function (typer reads its signature) or a `typer.Typer` with
subcommands, and add an entry to `COMMANDS`.
"""

from __future__ import annotations

import errno
import importlib
import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.common.errors import MissingExtraError

if TYPE_CHECKING:
    import typer


@dataclass(frozen=True, slots=True)
class Command:
    """Module and attribute of a subcommand, and its line in `odradek --help`."""

    module: str
    attribute: str
    help: str


COMMANDS = {
    "demo": Command(
        "odradek.cli.demo.command",
        "demo",
        "Send a year of flights to a cluster that fails and moves, as a demo.",
    ),
    "cluster": Command(
        "odradek.cli.brokers.cluster_commands",
        "app",
        "Describe or change a cluster; start, show and stop local brokers.",
    ),
    "simulate": Command(
        "odradek.cli.simulate",
        "app",
        "Simulate clusters that fail, move and recover, in virtual time.",
    ),
    "pipeline": Command(
        "odradek.cli.pipeline", "app", "Run SQL from topics to topics or files, with Spark."
    ),
    "events": Command(
        "odradek.cli.events.tables",
        "app",
        "Turn clients' event logs into tables of load and outages.",
    ),
    "topics": Command(
        "odradek.cli.topics.topic_commands", "app", "Topics: list, describe, create, alter, delete."
    ),
    "partitions": Command(
        "odradek.cli.topics.partition_commands", "app", "Partitions: list, reassign, elect leaders."
    ),
    "configs": Command(
        "odradek.cli.brokers.configs", "app", "Settings of topics, brokers, groups and others."
    ),
    "logdirs": Command("odradek.cli.brokers.logdirs", "app", "Log directories of brokers."),
    "groups": Command(
        "odradek.cli.groups", "app", "Groups: list, describe, lag, members, reset-offsets, delete."
    ),
    "offsets": Command("odradek.cli.topics.offsets", "app", "Offsets of partitions: list."),
    "acls": Command("odradek.cli.acls", "app", "ACLs: list, create, delete."),
    "users": Command(
        "odradek.cli.brokers.users",
        "app",
        "SCRAM users: list, describe, create, alter, delete.",
    ),
    "quotas": Command("odradek.cli.brokers.quotas", "app", "Client quotas: list, describe, alter."),
    "transactions": Command(
        "odradek.cli.topics.transactions",
        "app",
        "Transactions: list, describe, abort, hanging, producers.",
    ),
    "schemas": Command(
        "odradek.cli.schemas",
        "app",
        "Schemas: list, show, versions, compatibility, register, delete.",
    ),
    "produce": Command(
        "odradek.cli.console.produce", "produce", "Send lines of standard input as records."
    ),
    "consume": Command(
        "odradek.cli.console.consume", "consume", "Write the records of a topic to standard output."
    ),
    "copy": Command(
        "odradek.cli.copy", "copy", "Copy a topic to another one, or to another cluster."
    ),
    "broker-api-versions": Command(
        "odradek.cli.brokers.broker_api_versions",
        "broker_api_versions",
        "List the API versions that each broker supports.",
    ),
    "doctor": Command(
        "odradek.cli.doctor", "doctor", "Check a cluster: the first problem, and how to fix it."
    ),
    "explain": Command(
        "odradek.cli.explain.command",
        "explain",
        "Show the state of each broker address, or watch it (--watch).",
    ),
    "options": Command(
        "odradek.cli.options", "options", "Look up options: meaning, default, range, other names."
    ),
    "version": Command("odradek.cli.version", "version", "Print the version of Odradek."),
}


def build(wanted: str | None) -> typer.Typer:
    """Return the application with the wanted subcommand imported, and the others by name only."""
    import typer  # modules in subpackages must be importable without typer

    from odradek.cli.frame.overviews import overview

    app = overview(
        "A Kafka client that keeps working while its cluster dies, moves and comes back.", "odradek"
    )

    @app.callback()
    def _root(
        # typer resolves annotations by the names of this module, which doesn't import typer.
        version: bool = typer.Option(
            False, "--version", help="Print the version, as `odradek version` does."
        ),
    ) -> None:
        # With this function typer treats even a single command as a subcommand.
        if version:
            raise AssertionError("main() calls the command of that name instead")

    for name, command in COMMANDS.items():
        if name != wanted:
            app.command(name, help=command.help)(_not_called)
            continue
        found = getattr(importlib.import_module(command.module), command.attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
    return app


INTERRUPTED = 130
"""The exit status after Ctrl-C."""
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EPIPE)
"""Errors of writing to a full disk, or to a closed pipe."""

COMPLETION = "_ODRADEK_COMPLETE"
"""Environment variable that a shell sets to request completions (typer's protocol)."""


def completed_words(environment: Mapping[str, str]) -> list[str]:
    """Return the words of the command line that is being completed, without the program's name."""
    line = environment.get("COMP_WORDS") or environment.get("_TYPER_COMPLETE_ARGS") or ""
    return line.split()[1:]


def main() -> None:
    """Run the command line of this process.

    If the reader of the output closes the pipe early (`| head`), that isn't a failure: the exit
    status is 0, unless the command itself ended with another one.
    """
    _open_streams()
    if "HOME" not in os.environ:
        from odradek.runtime.private_files import home_directory

        os.environ["HOME"] = str(home_directory())  # typer and jgo would raise without it
    # Commands print their own messages, so the clients' warnings are silenced (R-IN-6).
    logging.getLogger("odradek").addHandler(logging.NullHandler())
    logging.getLogger("odradek.options").addHandler(logging.StreamHandler())
    if sys.argv[1:2] == ["--version"]:
        sys.argv[1] = "version"
    words = sys.argv[1:] if COMPLETION not in os.environ else completed_words(os.environ)
    wanted = next((word for word in words if not word.startswith("-")), None)
    status: str | int | None = 0
    try:
        try:
            build(wanted)()
        except SystemExit as end:
            # typer exits with status 1 if the reader has closed the pipe.
            status = 0 if isinstance(end.__context__, BrokenPipeError) else end.code
        except KeyboardInterrupt:  # Ctrl-C during an import
            status = INTERRUPTED
        except MissingExtraError as error:
            sys.stderr.write(f"odradek {wanted or ''}: {error}\n")
            status = 1
        sys.stdout.flush()  # errors of the flush at exit can't be handled
    except OSError as error:
        if error.errno not in UNWRITABLE:
            if error.filename is None:
                raise
            tool = f"odradek {wanted}" if wanted else "odradek"
            sys.stderr.write(f"{tool}: {_unusable(error)}\n")
            sys.exit(1)
        if error.errno != errno.EPIPE:
            text = f"output can't be written: {error.strerror}"
            sys.stderr.write(f"odradek {wanted or ''}: {text}\n")
            status = 1
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # flushed at exit
    sys.exit(status)


def _unusable(error: OSError) -> str:
    """Return a message about a file that can't be used, with a remedy for a read-only home."""
    path = os.fsdecode(error.filename)
    home = os.path.expanduser("~")  # noqa: PTH111 - pathlib would cost each start of the program
    cure = f"; set HOME to a directory that can be written to (it is {home})"
    inside = f"{path}/".startswith(f"{home.rstrip('/')}/")
    return f"{path} can't be used: {error.strerror}{cure if inside else ''}"


def _open_streams() -> None:
    """Open each stream that the shell closed (`>&-`), which Python sets to None.

    Otherwise a socket could get the stream's descriptor, and receive the output of a library.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nothing = open(os.devnull, mode, encoding="utf-8", errors="replace")  # noqa: PTH123, SIM115
            setattr(sys, name, nothing)


def _not_called() -> None:
    """Stand for a command that isn't called: the overview only needs its name and help text."""
    raise AssertionError("a command that was called must have been imported")
