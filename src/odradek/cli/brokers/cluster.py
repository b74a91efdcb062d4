"""`odradek cluster start | status | stop`: real Kafka brokers that stay until they are stopped.

In: a number of brokers, a version. Out: a detached process (`testing.detached`) that runs the
brokers, and a state file with which later commands find it; or, with `--simulated`, brokers in this
process. Must not: send a signal to a process that may be another one with the same id.

Exit statuses: 0 done, 1 it failed (or `status`: nothing runs), 2 wrong use.
"""

from __future__ import annotations

import json as jsonlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from odradek.cli.frame.overviews import overview
from odradek.testing import jars
from odradek.testing.brokers.detached import read_state, start_time, state_directory
from odradek.testing.brokers.security import INNER_USER, Security
from odradek.testing.errors import JarsError

app = overview("Describe or change a cluster; start, show and stop local brokers.")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
SecurityOption = Annotated[
    str, typer.Option(help="Protocol of the listeners: PLAINTEXT, SSL, SASL_SSL, SASL_PLAINTEXT.")
]
MechanismOption = Annotated[
    list[str] | None,
    typer.Option(show_default="SCRAM-SHA-512", help="A SASL mechanism; may be repeated."),
]
UserOption = Annotated[
    list[str] | None,
    typer.Option(
        show_default="odradek",
        help="A user, as name or name:password; may be repeated. Without a password, one is "
        "generated and written to the user's properties file.",
    ),
]
MutualTls = Annotated[
    bool, typer.Option("--mutual-tls", help="Require client certificates; needs TLS.")
]
Acls = Annotated[
    bool,
    typer.Option(
        "--acls",
        help="Deny everything that no ACL allows, except to the first --user. Needs --security "
        "SASL_SSL or SASL_PLAINTEXT, or --mutual-tls.",
    ),
]
Simulated = Annotated[
    bool,
    typer.Option(
        "--simulated", help="Start simulated brokers, without Java, until Ctrl-C or SIGTERM."
    ),
]
Registry = Annotated[
    bool, typer.Option("--registry", help="Start a schema registry, too (Apicurio Registry).")
]
Topics = Annotated[str, typer.Option(help="Topics of simulated brokers: name,name:partitions,…")]
OF_BOTH = {"brokers", "port", "auto_create_topics", "json", "simulated", "topics"}
"""Options that also apply to simulated brokers."""
PUBLIC = (
    *("bootstrap_servers", "cluster_id", "version", "directory", "security"),
    *("client_properties", "schema_registry_url", "pid"),
)
"""Fields of the cluster's state that `--json` prints."""
NOTHING = "no cluster is running"
STARTS = "start one with: odradek cluster start (three brokers, bootstrap address localhost:9092)"
DEFAULT_PORT = 9092
_STOP_TIMEOUT_S = 60.0
_POLL_S = 0.05


@app.command()
def start(
    context: typer.Context,
    brokers: Annotated[int, typer.Option(min=1, max=9, help="Number of brokers.")] = 3,
    version: Annotated[
        str, typer.Option(help="Kafka version, such as 4.3 or 4.3.1.")
    ] = jars.DEFAULT_VERSION,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port for bootstrap; 0 for any free port.")
    ] = DEFAULT_PORT,
    directory: Annotated[
        Path | None,
        typer.Option(
            help="Keep the data in this directory (default: a temporary one, which stop deletes)."
        ),
    ] = None,
    auto_create_topics: Annotated[
        bool, typer.Option(help="Whether brokers create topics on first use.")
    ] = True,
    security: SecurityOption = "PLAINTEXT",
    mechanism: MechanismOption = None,
    user: UserOption = None,
    mutual_tls: MutualTls = False,
    acls: Acls = False,
    registry: Registry = False,
    simulated: Simulated = False,
    topics: Topics = "",
    json: Json = False,
) -> None:
    """Start a cluster in the background; it runs until `odradek cluster stop`.

    For a secured cluster, this creates certificates and users, and for each user a properties file
    for clients and tools (--command-config). With --simulated, the cluster starts at once, keeps
    its records in memory, and runs in the foreground; it only supports --brokers, --port, --topics,
    --auto-create-topics and --json.

    Example: odradek cluster start --simulated --topics flights:3
    """
    sources = {name: context.get_parameter_source(name) for name in context.params}
    given = {name for name, source in sources.items() if source and source.name == "COMMANDLINE"}
    if simulated:
        _serve(given, brokers, port, topics, auto_create_topics=auto_create_topics, json=json)
        return
    if "topics" in given:
        raise typer.BadParameter(
            "--topics needs --simulated; for real topics, use odradek topics create"
        )
    running = read_state()
    if running is not None:
        where = running["bootstrap_servers"]
        _fail(f"a cluster is already running at {where}; stop it with: odradek cluster stop")
    try:
        version = jars.resolve_version(version)
    except JarsError as error:
        raise typer.BadParameter(str(error)) from None
    options: dict[str, Any] = {
        "brokers": brokers,
        "version": version,
        "port": port,
        "auto_create_topics": auto_create_topics,
        "directory": str(directory.resolve()) if directory else None,
        "registry": registry,
        **_security(security.upper(), mechanism, user, mutual_tls=mutual_tls, acls=acls),
    }
    if port and answers(port):
        from odradek.cli.brokers.simulated_cluster import TAKEN

        _fail(TAKEN.format(port=port))
    _detach(options)
    state = read_state()
    if state is None:
        _fail("the cluster stopped right after it had started")
    if json:
        typer.echo(jsonlib.dumps(_public(state)))
    else:
        _show(state)


def _serve(
    given: set[str], brokers: int, port: int, topics: str, *, auto_create_topics: bool, json: bool
) -> None:
    """Run simulated brokers until the command is stopped."""
    from odradek.cli.brokers.simulated_cluster import serve

    for name in sorted(given - OF_BOTH):
        option = f"--{name.replace('_', '-')}"
        raise typer.BadParameter(
            f"simulated brokers don't support {option}; leave out --simulated to use it"
        )
    names = [name.strip() for name in topics.split(",") if name.strip()]
    serve(brokers, port, names, auto_create_topics=auto_create_topics, json=json)


@app.command()
def status(json: Json = False) -> None:
    """Show whether a cluster is running, where, and which of its brokers are alive.

    The exit status is 1 if none is running. Brokers of `start --simulated` aren't shown: they live
    as long as their command.
    """
    state = read_state()
    if state is None:
        typer.echo(jsonlib.dumps({"running": False}) if json else f"{NOTHING}; {STARTS}")
        if not json and answers(DEFAULT_PORT):
            typer.echo(
                f"but something listens at localhost:{DEFAULT_PORT}: another program's "
                "brokers, or those of --simulated, which live as long as their command; to "
                f"find out, run odradek doctor localhost:{DEFAULT_PORT}",
                err=True,
            )
        raise typer.Exit(1)
    if json:
        typer.echo(jsonlib.dumps(_public(state)))
    else:
        _show(state)


@app.command()
def stop() -> None:
    """Stop the cluster that `odradek cluster start` started, and wait until it has ended."""
    state = read_state()
    if state is None:
        typer.echo(NOTHING)
        return
    watched = [state, *state["brokers"]]
    _signal(state, signal.SIGTERM)
    if not _gone(watched, _STOP_TIMEOUT_S):
        # The brokers are killed when this process ends.
        _signal(state, signal.SIGKILL)
        if not _gone(watched, _STOP_TIMEOUT_S):
            _fail(f"process {state['pid']} or one of its brokers doesn't stop")
    read_state()  # a killed process leaves its state file, which this deletes
    typer.echo(f"stopped the cluster at {state['bootstrap_servers']}")


def answers(port: int) -> bool:
    """Return whether a process accepts connections at this port of localhost."""
    try:
        with socket.create_connection(("localhost", port), timeout=1.0):
            return True
    except OSError:
        return False


def _security(
    security: str,
    mechanisms: list[str] | None,
    users: list[str] | None,
    *,
    mutual_tls: bool,
    acls: bool,
) -> dict[str, Any]:
    """Return the security options of the cluster; refuse invalid combinations."""
    sasl, ssl = security.startswith("SASL"), security.endswith("SSL")
    if mutual_tls and not ssl:
        raise typer.BadParameter("--mutual-tls needs --security SSL or SASL_SSL")
    if acls and not (sasl or mutual_tls):
        raise typer.BadParameter(
            "--acls needs --security SASL_SSL or SASL_PLAINTEXT, or --security SSL with "
            "--mutual-tls"
        )
    if (mechanisms and not sasl) or (users and not (sasl or mutual_tls)):
        raise typer.BadParameter(
            "--mechanism and --user need --security SASL_SSL or SASL_PLAINTEXT; --user may also "
            "be used with --mutual-tls"
        )
    for one in users or ():
        if "=" in one.partition(":")[0]:  # don't print the value, which may contain a password
            raise typer.BadParameter("--user must be name or name:password, without =")
    named = users or (["odradek"] if sasl else [])
    words = [one.partition(":") for one in named]
    options: dict[str, Any] = {
        "security": security,
        "mechanisms": [one.upper() for one in mechanisms or ()],
        "users": {name: word or secrets.token_urlsafe(12) for name, _, word in words},
        "mutual_tls": "required" if mutual_tls else False,
        "acls": acls,
    }
    try:
        Security(*options.values())
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if acls:  # without a super user, no command could create the first ACL
        first = next(iter(options["users"]))
        options["config"] = {"super.users": f"User:{INNER_USER};User:{first}"}
    return options


def _detach(options: dict[str, Any]) -> None:
    """Start the process that holds the cluster, and wait until it is up."""
    state_directory().mkdir(parents=True, exist_ok=True)
    # The process gets its own session: neither Ctrl-C nor closing the terminal stops it.
    with (state_directory() / "cluster.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "odradek.testing.brokers.detached"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            cwd="/",
        )
    try:
        if process.stdin is not None:
            with process.stdin as pipe:
                pipe.write(jsonlib.dumps(options).encode())
        _follow(process, Path(log.name))
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise


def _follow(process: subprocess.Popen[bytes], log: Path) -> None:
    """Print the output of the starting cluster until it is up or has failed."""
    last = ""
    for raw in process.stdout or ():
        line = raw.decode(errors="replace").rstrip()
        if line == "up":
            return
        if line.startswith("failed: ") or last:
            last += line.removeprefix("failed: ") + "\n"
        else:
            typer.echo(line, err=True)
    process.wait()
    _fail(last.rstrip() or f"the cluster's process ended:\n{log.read_text(errors='replace')}")


def _signal(state: dict[str, Any], number: signal.Signals) -> None:
    # A pidfd refers to this process even if its id is reused meanwhile.
    try:
        pidfd = os.pidfd_open(state["pid"])
    except ProcessLookupError:
        return
    try:
        if start_time(state["pid"]) == state["start_time"]:
            signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return
    finally:
        os.close(pidfd)


def _gone(processes: list[dict[str, Any]], timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while any(_lives(one) for one in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _lives(process: dict[str, Any]) -> bool:
    return start_time(int(process["pid"])) == str(process["start_time"])


def _public(state: dict[str, Any]) -> dict[str, Any]:
    brokers = [
        {**{name: one[name] for name in ("id", "address", "pid")}, "running": _lives(one)}
        for one in state["brokers"]
    ]
    return {"running": True, **{name: state[name] for name in PUBLIC}, "brokers": brokers}


def _show(state: dict[str, Any]) -> None:
    typer.echo(f"bootstrap servers  {state['bootstrap_servers']}")
    typer.echo(f"Kafka version      {state['version']}")
    typer.echo(f"cluster id         {state['cluster_id']}")
    typer.echo(f"logs and data      {state['directory']}")
    if state["security"] != "PLAINTEXT":
        typer.echo(f"security           {state['security']}")
    if state["schema_registry_url"]:
        typer.echo(f"schema registry    {state['schema_registry_url']}")
    for name, path in state["client_properties"].items():
        label = f"settings of {name}"
        typer.echo(f"{label:<18} {path}")
    for one in state["brokers"]:
        how = f"running, process {one['pid']}" if _lives(one) else "not running"
        typer.echo(f"broker {one['id']}           {one['address']}  {how}")


def _fail(message: str) -> NoReturn:
    typer.echo(f"odradek cluster: {message}", err=True)
    raise typer.Exit(1)
