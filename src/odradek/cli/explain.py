"""`odradek explain`: why a cluster can't be reached from here, or that it can.

In: a bootstrap address, options of a client. Out: the client's own `explain()` after it has tried,
for people or as JSON; with `--watch` again and again. Exit statuses: 0 a broker of the cluster
answered, 1 none did, 2 wrong use. Must not: know more than `explain()` does; what a user sees here
is what any client of theirs can say of itself.
"""

from __future__ import annotations

import json as jsonlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek.api.admin import Admin
from odradek.cli.console.properties import UsageError, parse_words, read_client_file
from odradek.cli.console.waiting import checked, ending, say
from odradek.common.config import ADMIN
from odradek.common.errors import KafkaError
from odradek.common.events import Event
from odradek.common.spellings import sealed

if TYPE_CHECKING:
    from odradek.api.explain import AddressExplanation, Explanation

TIMEOUT = 10.0
PERIOD = 1.0
PROGRESS = 2.0
"""Seconds between two lines on stderr while a single picture is waited for."""
ASK_AGAIN = 1.0
LONGEST_CALL = 30.0
LONGEST_PERIOD = 3600.0


def explain(
    bootstrap: Annotated[str, typer.Argument(help="Where to start: host:port, with commas.")],
    seconds: Annotated[
        float | None,
        typer.Argument(metavar="[SECONDS]", help="With --watch: between two pictures [1]."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on, and draw the picture again and again.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(min=0.0, help="Seconds to try [10; with --watch until Ctrl-C]."),
    ] = None,
    command_config: Annotated[
        Path | None,
        typer.Option(help="A file with options of the client, in Java's properties form."),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="An option of the client; may be repeated."),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON; with --watch one line per picture.")
    ] = False,
) -> None:
    """Try to reach a cluster, and say what is in the way. Exit status 1 if it can't be reached."""
    with ending("odradek explain"):
        if seconds is not None and not watch:
            raise UsageError("SECONDS goes with --watch")
        if seconds is not None and not 0.01 <= seconds <= LONGEST_PERIOD:
            raise UsageError(f"SECONDS must be 0.01 to {LONGEST_PERIOD:.0f}, not {seconds}")
        given = read_client_file(command_config, ADMIN)
        given.update(sealed(parse_words(config or (), "--config")))
        given["bootstrap.servers"] = bootstrap
        given.setdefault("client.id", "odradek-explain")
        checked(ADMIN, given)
        if watch:
            reached = _watch(given, seconds or PERIOD, timeout, json=json)
        else:
            reached = _once(given, TIMEOUT if timeout is None else timeout, json=json)
    raise typer.Exit(0 if reached else 1)


# One picture


def _once(given: dict[str, Any], timeout: float, *, json: bool) -> bool:
    started = time.monotonic()
    error: KafkaError | None = None
    with Admin(given) as admin:
        admin.listen(_Progress(admin, started))
        try:
            admin.describe_cluster(timeout=timeout)
        except KafkaError as failure:
            error = failure
        picture = admin.explain()
    elapsed = time.monotonic() - started
    if json:
        typer.echo(jsonlib.dumps(_as_dict(picture, error, elapsed), indent=2))
    else:
        from rich.console import Console

        console = Console(highlight=False)
        console.print(_drawn(picture))
        console.print(f"\n{_verdict(error, elapsed)}", style="bold", markup=False)
    return error is None


class _Progress:
    """Says on stderr what the client makes of it, now and then."""

    def __init__(self, admin: Admin, started: float) -> None:
        self._admin = admin
        self._started = started
        self._next = started + PROGRESS

    def __call__(self, event: Event) -> None:
        now = time.monotonic()
        if now >= self._next and event.kind != "closed":
            self._next = now + PROGRESS
            say(f"{now - self._started:.0f} s: {self._admin.explain().diagnosis}")


# Pictures until somebody has seen enough


class _Asker:
    """Asks the cluster for its description again and again, in a thread of its own."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._stop = threading.Event()
        self.error: KafkaError | None = None
        self.answered = False
        """The latest question was answered."""
        self.fatal = False
        self._thread = threading.Thread(target=self._run, name="explain", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set() and not self.fatal:
            try:
                self._admin.describe_cluster(timeout=LONGEST_CALL)
            except KafkaError as error:
                self.error, self.answered = error, False
                self.fatal = error.fatal
            else:
                self.error, self.answered = None, True
            self._stop.wait(ASK_AGAIN)

    def stop(self) -> None:
        """No further question; the one that is open ends with the client."""
        self._stop.set()


def _watch(given: dict[str, Any], period: float, timeout: float | None, *, json: bool) -> bool:
    started = time.monotonic()
    admin = Admin(given, _background=True)
    asker = _Asker(admin)
    end = None if timeout is None else started + timeout
    reached = False
    try:
        with _screen(json=json) as show:
            while True:
                picture = admin.explain()
                out = picture.outage is not None and picture.outage.total
                reached = asker.answered and not out
                show(picture, asker.error, reached, time.monotonic() - started)
                left = period if end is None else min(period, end - time.monotonic())
                if left <= 0 or asker.fatal:
                    break
                time.sleep(left)
    except KeyboardInterrupt:
        pass
    finally:
        asker.stop()
        admin.close(1.0)
    return reached


@contextmanager
def _screen(*, json: bool) -> Iterator[Any]:
    if json:

        def echo(
            picture: Explanation, error: KafkaError | None, reached: bool, elapsed: float
        ) -> None:
            found = _as_dict(picture, error, elapsed)
            typer.echo(jsonlib.dumps({**found, "reached": reached}))

        yield echo
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:

        def draw(
            picture: Explanation, error: KafkaError | None, reached: bool, elapsed: float
        ) -> None:
            live.update(_drawn(picture), refresh=True)

        yield draw


# Drawing


def _as_dict(picture: Explanation, error: KafkaError | None, elapsed: float) -> dict[str, Any]:
    return {
        "reached": error is None,
        "error": None if error is None else f"{type(error).__name__}: {error}",
        "elapsed": round(elapsed, 3),
        **picture.to_dict(),
    }


def _verdict(error: KafkaError | None, elapsed: float) -> str:
    if error is None:
        return f"reached in {elapsed:.1f} s"
    return f"not reached in {elapsed:.1f} s ({type(error).__name__})"


def _drawn(picture: Explanation) -> Any:
    """The picture for people: the diagnosis, a table of addresses, the rest in lines."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    cluster = picture.cluster_id or "not known yet"
    head = Text(f"{picture.client} {picture.client_id}, cluster {cluster}\n")
    well = picture.ended is None and picture.outage is None and picture.cluster_id is not None
    head.append(picture.diagnosis, style="bold green" if well else "bold red")
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name in ("address", "role", "state", "failures", "next dial"):
        table.add_column(name, overflow="fold")
    for a in picture.addresses:
        table.add_row(
            Text(a.address),
            Text(a.role),
            Text(_state(a), style="green" if a.ready and not a.silent else "yellow"),
            Text(f"{a.failures} in a row" if a.failures else ""),
            Text(f"in {a.backoff_left:.2f} s" if a.backoff_left else ""),
        )
    errors = [f"{a.address}: {_error(a)}" for a in picture.addresses if _error(a)]
    rest = [picture.metadata_line(), *picture.outage_lines(), *picture.rebootstrap_lines()]
    rest += [f"waits for {what}, {left:.1f} s left" for what, left in picture.waiting]
    return Group(head, table, Text("\n".join([*errors, *rest])))


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
