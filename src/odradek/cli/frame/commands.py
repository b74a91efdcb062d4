"""Convert a function that calls an admin client, or another client, to a command.

In: a function `(run, its own arguments …) -> Result`. Out: a command with the common flags and its
own, which prints the result and ends with a status: 0 done, 1 failed or partly failed, 2 wrong use,
130 Ctrl-C. Must not: retry; the client does, until the timeout.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints, overload

import typer

from odradek.api.admin import Admin
from odradek.cli.console.properties import UsageError
from odradek.cli.console.waiting import Failing, ending, perhaps_unread, say, telling_of_waiting
from odradek.cli.frame.name_suggestions import with_name_suggestions
from odradek.cli.frame.results import (
    Result,
    as_document,
    print_error,
    show_failed,
    show_found,
)
from odradek.cli.frame.settings import BOOTSTRAP, COMMAND_CONFIG, PROFILE, Flags, settings
from odradek.clients.bootstrap_timeout import seconds_to_reach
from odradek.common.errors import KafkaError
from odradek.common.errors.kafka import BrokerIdNotRegisteredError
from odradek.common.printable import printable

K = TypeVar("K")
V = TypeVar("V")
Verb = Callable[..., Result]

Bootstrap = Annotated[
    str | None,
    typer.Option(help=f"Bootstrap servers: host:port, comma-separated (or {BOOTSTRAP})."),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(help=f"A Java properties file with client options (or {COMMAND_CONFIG})."),
]


def _property(*names: str) -> typer.models.OptionInfo:
    text = "A client option, by Kafka's name; may be repeated."
    option: typer.models.OptionInfo = typer.Option(*names, metavar="KEY=VALUE", help=text)
    return option


CommandProperty = Annotated[list[str] | None, _property("--command-property", "--config")]
PropertyAlone = Annotated[list[str] | None, _property("--command-property")]
ProfileName = Annotated[
    str | None,
    typer.Option(
        help=f"A profile of ~/.config/odradek/config.toml with client options (or {PROFILE})."
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        metavar="SECONDS",
        show_default=False,
        help="Overall timeout (default: default.api.timeout.ms, one minute; if no broker can be "
        "reached, bootstrap.timeout.ms, 10 s).",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be done, without changing anything.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Don't ask for confirmation.")]


class CommandRun:
    """One run of a command: its timeout, confirmation and progress messages."""

    waits_for = "the cluster"

    def __init__(self, timeout: float, tool: str, *, dry_run: bool, yes: bool, json: bool) -> None:
        self.tool = tool
        """Command as the user types it."""
        self.json = json
        self.dry_run = dry_run
        """Whether nothing may be changed: the brokers only validate the change if they can,
        otherwise the command only prints it."""
        self._yes = yes
        self._timeout = timeout
        self._until = time.monotonic() + timeout
        self._telling = contextlib.ExitStack()
        self._failing: Failing | None = None

    def left(self) -> float:
        """Return the seconds left of `--timeout`, as the timeout of each call of `admin`."""
        return max(0.0, self._until - time.monotonic())

    def again(self) -> None:
        """Restart the timeout, for a command that repeats its work or has waited for the user."""
        self._until = time.monotonic() + self._timeout

    @property
    def asks(self) -> bool:
        """Whether `confirm` asks the user."""
        there = sys.stdin is not None and sys.stdin.isatty()
        return there and not (self._yes or self.dry_run)

    def confirm(self, what: str) -> None:
        """Ask the user to confirm a destructive change; `what` begins with a verb.

        Does nothing with `--yes` or in a dry run. Raises `UsageError` if there is no terminal, and
        `typer.Exit` if the answer isn't yes.
        """
        if self._yes or self.dry_run:
            return
        if not self.asks:
            raise UsageError(
                f"this would {what}, but there is no terminal to ask for confirmation: use "
                "--yes to confirm, or --dry-run to see what would be done"
            )
        self._telling.close()
        began = time.monotonic()
        sys.stderr.write(printable(f"This will {what}. Continue? [y/N] ", limit=None))
        sys.stderr.flush()
        meant = sys.stdin.readline().strip().lower() in ("y", "yes")
        if not meant:
            say("Nothing was done.")
            if self.json:
                print_error(UsageError("nothing was done: the answer wasn't yes"))
            raise typer.Exit(1)
        self._until += time.monotonic() - began
        self.tell_of_waiting()

    def tell_of_waiting(self) -> None:
        """Print a line on stderr if the command runs for long after this call."""
        began = time.monotonic()

        def text() -> str:
            left = self.still(time.monotonic() - began)
            return f"still waiting for {self.waits_for}, for at most {left:.0f} s"

        self._telling.enter_context(telling_of_waiting(text, failing=self._failing))

    def still(self, waited: float) -> float:
        """Return the seconds that the command may still wait, after a wait of `waited` seconds."""
        return self.left()

    def close(self) -> None:
        """Cancel the message of `tell_of_waiting`."""
        self._telling.close()


class AdminRun(CommandRun):
    """One run of a command that calls an admin client."""

    def __init__(
        self,
        admin: Admin,
        timeout: float,
        tool: str,
        *,
        first_contact: float = math.inf,
        dry_run: bool,
        yes: bool,
        json: bool,
    ) -> None:
        """Take `first_contact`: the seconds for which the admin client waits for a first broker."""
        super().__init__(timeout, tool, dry_run=dry_run, yes=yes, json=json)
        self.admin = admin
        self._first_contact = first_contact
        self._connections = self._failing = Failing()
        admin.listen(self._connections)

    def still(self, waited: float) -> float:
        """Return the seconds left; before any broker is reached, the seconds left to reach one."""
        if self._connections.reached:
            return self.left()
        return min(self.left(), self._first_contact - waited)

    @overload
    def each(self, call: Callable[[], Mapping[K, V]]) -> tuple[dict[K, V], dict[K, KafkaError]]: ...

    @overload
    def each(
        self, call: Callable[[], object], items: Iterable[K]
    ) -> tuple[dict[K, Any], dict[K, KafkaError]]: ...

    def each(
        self, call: Callable[[], Any], items: Iterable[Any] = ()
    ) -> tuple[dict[Any, Any], dict[Any, KafkaError]]:
        """Call an admin method with several items; return its results and its errors by item.

        For a method without results, `items` are the keys of the results, with value None. Errors
        that don't belong to an item are raised.
        """
        try:
            found = call()
        except KafkaError as error:
            if not error.errors:
                raise
            return dict(error.results), dict(error.errors)
        return dict.fromkeys(items) if found is None else dict(found), {}

    def absent_brokers(self, ids: Iterable[int]) -> dict[int, KafkaError]:
        """Return an error for each of these brokers that the cluster doesn't list.

        A client would wait for the broker, which may return; a user who typed an id wants an error.
        """
        wanted = list(dict.fromkeys(ids))
        if not wanted:
            return {}
        there = sorted(one.id for one in self.admin.describe_cluster(self.left()).brokers)
        known = ", ".join(map(str, there))
        return {
            one: BrokerIdNotRegisteredError(
                f"broker {one} isn't in the cluster now; its brokers are {known}"
            )
            for one in wanted
            if one not in there
        }


class CommandRegistry:
    """Decorators that convert functions to commands with common flags."""

    def __init__(
        self,
        flags: Callable[[Any], dict[str, tuple[Any, Any]]],
        run_verb: Callable[[str, Callable[[Any], Result], dict[str, Any]], None],
    ) -> None:
        """Set `flags`, which returns types and defaults of the common flags for a function.

        `run_verb` gets the command as it is typed, a function of the run, and the flags' values.
        """
        self._flags, self._run_verb = flags, run_verb

    def reads(self, app: typer.Typer, name: str | None = None) -> Callable[[Verb], Verb]:
        """Register a command that only reads."""
        return lambda verb: self._register(app, name, verb, {})

    def changes(self, app: typer.Typer, name: str | None = None) -> Callable[[Verb], Verb]:
        """Register a command that changes something, and so has `--dry-run`."""
        return lambda verb: self._register(app, name, verb, {"dry_run": (DryRun, False)})

    def destroys(self, app: typer.Typer, name: str | None = None) -> Callable[[Verb], Verb]:
        """Register a destructive command, with `--dry-run`, `--yes` and a question to the user."""
        own = {"dry_run": (DryRun, False), "yes": (Yes, False)}
        return lambda verb: self._register(app, name, verb, own)

    def _register(
        self, app: typer.Typer, name: str | None, verb: Verb, own: dict[str, tuple[Any, Any]]
    ) -> Verb:
        of_frame = self._flags(verb) | own | {"json": (Json, False)}
        return _registered(app, name, verb, of_frame, self._run_verb)


def _of_admin(verb: Any) -> dict[str, tuple[Any, Any]]:
    """Return the common flags of commands that call an admin client."""
    own = inspect.signature(verb).parameters
    return {
        "bootstrap_server": (Bootstrap, None),
        "command_config": (CommandConfig, None),
        # In `topics create`, --config is a topic option, as in Kafka's tool, not a client's.
        "command_property": (PropertyAlone if "config" in own else CommandProperty, None),
        "profile": (ProfileName, None),
        "timeout": (Timeout, None),
    }


def _registered(
    app: typer.Typer,
    name: str | None,
    verb: Verb,
    of_frame: Mapping[str, tuple[Any, Any]],
    run_verb: Callable[[str, Callable[[Any], Result], dict[str, Any]], None],
) -> Verb:
    own = inspect.signature(verb).parameters
    kinds = get_type_hints(verb, include_extras=True)

    @wraps(verb, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
    def command(context: typer.Context, **given: Any) -> None:
        frame = {key: given.pop(key) for key in of_frame}
        run_verb(_path(context), lambda run: verb(run, **given), frame)

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter("context", keyword, annotation=typer.Context)]
    parameters += [
        p.replace(annotation=kinds[p.name], kind=keyword) for p in list(own.values())[1:]
    ]
    parameters += [
        inspect.Parameter(key, keyword, default=default, annotation=kind)
        for key, (kind, default) in of_frame.items()
    ]
    # Typer reads the signature; annotations would be resolved in the wrong module.
    command.__annotations__.clear()
    command.__dict__["__signature__"] = inspect.Signature(parameters)
    command.__annotations__.update({p.name: p.annotation for p in parameters})
    app.command(name)(command)
    return verb


def _path(context: typer.Context) -> str:
    """Return the command as it is typed, always with the program name odradek."""
    names: list[str] = []
    at: Any = context
    while at.parent is not None:
        names.insert(0, at.info_name or "")
        at = at.parent
    return " ".join(("odradek", *names))


def _run(tool: str, verb: Callable[[AdminRun], Result], frame: dict[str, Any]) -> None:
    printing(tool, lambda: _called(tool, verb, frame), json=frame["json"])


_ADMIN = CommandRegistry(_of_admin, _run)
reads, changes, destroys = _ADMIN.reads, _ADMIN.changes, _ADMIN.destroys


def printing(tool: str, call: Callable[[], Result], *, json: bool) -> None:
    """Call a command's function, print its result or error, and end with its status."""
    with ending(tool), as_document(json=json):
        result = call()
    with perhaps_unread():
        show_found(result, json=json)
    show_failed(result, tool)
    if result.failed:
        raise typer.Exit(1)


def _called(tool: str, verb: Callable[[AdminRun], Result], frame: dict[str, Any]) -> Result:
    found = settings(
        Flags(
            frame["bootstrap_server"],
            frame["command_config"],
            tuple(frame["command_property"] or ()),
            frame["profile"],
            frame["timeout"],
        )
    )
    if found.warning:
        say(found.warning)
    with (
        Admin(found.given) as admin,
        contextlib.closing(
            AdminRun(
                admin,
                found.timeout,
                tool,
                first_contact=seconds_to_reach(found.config, None),
                dry_run=frame.get("dry_run", False),
                yes=frame.get("yes", False),
                json=frame["json"],
            )
        ) as run,
    ):
        run.tell_of_waiting()
        result = verb(run)
        return replace(result, failed=with_name_suggestions(run, result.failed))
