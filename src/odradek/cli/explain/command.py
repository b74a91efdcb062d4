"""Run `odradek explain`: report whether a cluster can be reached from here, and if not, why.

In: a bootstrap address, options of a client. Out: the result of an admin client that connects to
every address (`describe_reachability`), and its own `explain()` after that, as text or JSON; with
`--watch` repeatedly. Exit statuses: 0 all is well, 1 no broker answers, 2 wrong use, 3 a part
doesn't work, 130 Ctrl-C. Must not: know more than those two calls, which any program can make.
"""

from __future__ import annotations

import json as jsonlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

# Import everything before the first connection: Python sometimes loses a Ctrl-C during an import.
import typer
from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from odradek.api.admin import Admin
from odradek.cli import INTERRUPTED
from odradek.cli.console.flags import (
    Bootstrap,
    CommandConfig,
    OrOption,
    ProfileName,
    where_to_start,
)
from odradek.cli.console.properties import UsageError
from odradek.cli.console.waiting import ending, perhaps_unread, say
from odradek.cli.explain.explanation_text import as_dict, checked_topic, trouble, verdict
from odradek.cli.frame.results import as_document
from odradek.cli.frame.settings import Flags, settings
from odradek.clients.admin.reachability import OUT_OF_REACH, PARTLY, WELL
from odradek.clients.explain.explanation import AddressExplanation, Explanation
from odradek.common.errors import KafkaError
from odradek.common.events import Event

if TYPE_CHECKING:
    from odradek.clients.admin.reachability import Reachability

STATUSES = {WELL: 0, OUT_OF_REACH: 1, PARTLY: 3}
"""Exit statuses by state; 2 means wrong use, as for all commands."""
TIMEOUT = 10.0
"""Timeout of a check in seconds, long enough for slow brokers (R-RB-9)."""
PERIOD = 1.0
PROGRESS = 2.0
"""Interval of progress messages on stderr, in seconds."""
ASK_AGAIN = 1.0
LONGEST_PERIOD = 3600.0


def explain(
    bootstrap: Bootstrap = None,
    seconds: Annotated[
        float | None,
        typer.Argument(
            metavar="[SECONDS]", show_default="1", help="With --watch: seconds between updates."
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Repeat, and update the output in place.")
    ] = False,
    bootstrap_server: OrOption = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(show_default="all topics", help="Only this topic; may be repeated."),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=0.0, show_default="10; with --watch until Ctrl-C", help="Seconds to try."),
    ] = None,
    command_config: CommandConfig = None,
    profile: ProfileName = None,
    config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A client option; may be repeated."),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON; with --watch one line per update.")
    ] = False,
) -> None:
    """Connect to every broker of a cluster, and show the state of each address.

    Use it to watch an outage (--watch) or in a probe (--json). To find out what is wrong, begin
    with odradek doctor, which also checks ACLs, groups and quotas and names the fix.

    The exit status is 0 if everything works, 1 if no broker answers, 3 if it works in part: some
    address doesn't answer, some partition has no leader, or a topic doesn't exist.
    """
    with ending("odradek explain"), as_document(json=json):
        if seconds is not None and not watch:
            raise UsageError(
                f"SECONDS ({seconds:g}) is the interval of --watch; to limit the time, use "
                f"--timeout {seconds:g}"
            )
        if seconds is not None and not 0.01 <= seconds <= LONGEST_PERIOD:
            raise UsageError(f"SECONDS must be 0.01 to {LONGEST_PERIOD:.0f}, not {seconds}")
        start = where_to_start(bootstrap, bootstrap_server)
        flags = Flags(start, command_config, tuple(config or ()), profile, spelling="--config")
        found = settings(flags, usual={"client.id": "odradek-explain"})
        if found.warning:
            say(found.warning)
        given = found.given
        for name in topic or ():
            checked_topic(name)
        if watch:
            state = _watch(given, topic, seconds or PERIOD, timeout, json=json)
        else:
            state = _once(given, topic, TIMEOUT if timeout is None else timeout, json=json)
    raise typer.Exit(STATUSES[state])


# A single result


def _once(given: dict[str, Any], topics: list[str] | None, timeout: float, *, json: bool) -> str:
    started = time.monotonic()
    error: KafkaError | None = None
    found: Reachability | None = None
    with Admin(given) as admin:
        admin.listen(_Progress(admin, started))
        try:
            found = admin.describe_reachability(topics, timeout=timeout)
        except KafkaError as failure:
            error = failure
        picture = admin.explain()
    elapsed = time.monotonic() - started
    with perhaps_unread():
        if json:
            typer.echo(jsonlib.dumps(as_dict(picture, found, error, elapsed), indent=2))
        else:
            console = Console(highlight=False)
            console.print(_drawn(picture, found))
            console.print(f"\n{verdict(found, error, elapsed)}", style="bold", markup=False)
    return OUT_OF_REACH if found is None else found.state


class _Progress:
    """Prints the client's diagnosis on stderr from time to time."""

    def __init__(self, admin: Admin, started: float) -> None:
        self._admin = admin
        self._started = started
        self._next = started + PROGRESS

    def __call__(self, event: Event) -> None:
        now = time.monotonic()
        if now >= self._next and event.kind != "closed":
            self._next = now + PROGRESS
            say(f"{now - self._started:.0f} s: {self._admin.explain().diagnosis}")


# Repeated output until Ctrl-C


class _Asker:
    """Checks every address of the cluster repeatedly, in a background thread."""

    def __init__(self, admin: Admin, topics: list[str] | None, longest: float) -> None:
        self._admin = admin
        self._topics = topics
        self._longest = longest
        self._stop = threading.Event()
        self.error: KafkaError | None = None
        self.found: Reachability | None = None
        """Result of the latest check; None if it failed."""
        self.fatal = False
        self._thread = threading.Thread(target=self._run, name="explain", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set() and not self.fatal:
            try:
                self.found = self._admin.describe_reachability(self._topics, self._longest)
            except KafkaError as error:
                self.error, self.found = error, None
                self.fatal = error.fatal
            else:
                self.error = None
            self._stop.wait(ASK_AGAIN)

    def stop(self) -> None:
        """Start no further check; closing the client ends the current one."""
        self._stop.set()


def _watch(
    given: dict[str, Any],
    topics: list[str] | None,
    period: float,
    timeout: float | None,
    *,
    json: bool,
) -> str:
    started = time.monotonic()
    admin = Admin(given, background=True)
    # A check takes at most half of the total time, so that one finishes in time.
    asker = _Asker(admin, topics, TIMEOUT if timeout is None else min(TIMEOUT, timeout / 2))
    end = None if timeout is None else started + timeout
    try:
        with _screen(json=json) as show:
            while True:
                picture = admin.explain()
                out = picture.outage is not None and picture.outage.total
                found = None if out else asker.found
                show(picture, found, asker.error, time.monotonic() - started)
                left = period if end is None else min(period, end - time.monotonic())
                if left <= 0 or asker.fatal:
                    return OUT_OF_REACH if found is None else found.state
                time.sleep(left)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    finally:
        asker.stop()
        admin.close(1.0)


@contextmanager
def _screen(*, json: bool) -> Iterator[Any]:
    """Yield a function that shows a result, an error and the seconds since the start."""
    if json:
        yield lambda *shown: typer.echo(jsonlib.dumps(as_dict(*shown)))
        return
    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:
        yield lambda picture, found, *_: live.update(_drawn(picture, found), refresh=True)


# Drawing


def _drawn(picture: Explanation, found: Reachability | None) -> Any:
    """Return the result for a terminal: diagnosis, table of addresses, further lines."""
    cluster = picture.cluster_id or "not known yet"
    head = Text(f"{picture.client} {picture.client_id}, cluster {cluster}\n")
    well = picture.ended is None and picture.outage is None and picture.cluster_id is not None
    wrong = [] if found is None else trouble(found, picture)
    partly = found is not None and found.state == PARTLY and picture.ended is None
    lines = wrong if partly else [picture.diagnosis, *wrong]
    head.append("\n".join(lines), style="bold green" if well and not wrong else "bold red")
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name in ("address", "role", "state", "failures", "next attempt"):
        table.add_column(name, overflow="fold")
    for a in picture.addresses:
        table.add_row(
            Text(a.address),
            Text(a.role),
            Text(_state(a), style="green" if a.ready and not a.silent else "yellow"),
            Text(f"{a.failures} in a row" if a.failures else ""),
            Text(_next_dial(a)),
        )
    errors = [f"{a.address}: {_error(a)}" for a in picture.addresses if _error(a)]
    rest = [picture.metadata_line(), *picture.outage_lines(), *picture.rebootstrap_lines()]
    rest += [f"waiting for {what}, {left:.1f} s left" for what, left in picture.waiting]
    return Group(head, table, Text("\n".join([*errors, *rest])))


def _next_dial(a: AddressExplanation) -> str:
    after = f"after {a.next_dial_after}" if a.next_dial_after else ""
    return after if a.next_dial_in is None or not after else f"in {a.next_dial_in:.2f} s, {after}"


def _state(a: AddressExplanation) -> str:
    text = a.state + (", silent" if a.silent else "")
    if a.pending_for is not None:
        text += f" for {a.pending_for:.1f} s"
    return text + (f", {a.in_flight} in flight" if a.in_flight else "")


def _error(a: AddressExplanation) -> str:
    parts = []
    if a.last_error is not None and a.last_error_age is not None:
        where = f"at {a.ip}, " if a.ip else ""
        parts.append(f"{where}{a.last_error_age:.1f} s ago: {a.last_error}")
    if a.meaning is not None:
        parts.append(f"[{a.meaning}]")
    return " ".join(parts)
