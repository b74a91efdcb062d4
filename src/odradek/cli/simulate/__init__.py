"""`odradek simulate …`: whole clusters and fleets of clients in virtual time.

In: the command line. Out: one module per subcommand (`recovery`, `fleet`, `explore` …) registers
itself with `app`. Must not: import a simulation to print help; each command does so when it runs.
"""

from __future__ import annotations

from odradek.cli.frame.overviews import overview
from odradek.cli.simulate.explore import explore, replay
from odradek.cli.simulate.fleet import fleet
from odradek.cli.simulate.recovery import recovery

app = overview("Simulate clusters that fail, move and recover, in virtual time.")


@app.callback()
def _root() -> None:
    """Make typer treat even a single command as a subcommand."""


app.command("explore")(explore)
app.command("replay")(replay)
app.command("recovery")(recovery)
app.command("fleet")(fleet)
