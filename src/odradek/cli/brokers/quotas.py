"""`odradek quotas`: list, set and remove quotas of clients, as kafka-configs does.

In: users, client ids, addresses, quotas by Kafka's names. Out: listed, set or removed quotas. Must
not: interpret quotas; brokers do.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer

from odradek.cli.console.properties import parse_words, refuse
from odradek.cli.frame.commands import AdminRun, changes, reads
from odradek.cli.frame.overviews import overview
from odradek.cli.frame.results import Result, ResultTable
from odradek.clients.admin.users import ClientQuotaEntity

app = overview("Client quotas: list, describe, alter.")

OF_CLIENTS = {
    "producer_byte_rate": "bytes per second",
    "consumer_byte_rate": "bytes per second",
    "request_percentage": "percent of a thread's time",
    "controller_mutation_rate": "partitions per second",
}
OF_ADDRESSES = {"connection_creation_rate": "connections per second"}
KEYS = {**OF_CLIENTS, **OF_ADDRESSES}
"""Units of Kafka's quotas, by name."""
Quotas = Mapping[ClientQuotaEntity, Mapping[str, float]]

UserOption = Annotated[str | None, typer.Option(metavar="NAME", help="A user.")]
ClientOption = Annotated[str | None, typer.Option(metavar="ID", help="A client.id.")]
IpOption = Annotated[str | None, typer.Option(metavar="ADDRESS", help="An IP address.")]
UserDefaults = Annotated[
    bool, typer.Option("--user-defaults", help="Users without quotas of their own.")
]
ClientDefaults = Annotated[
    bool, typer.Option("--client-defaults", help="Client ids without quotas of their own.")
]
IpDefaults = Annotated[
    bool, typer.Option("--ip-defaults", help="Addresses without quotas of their own.")
]


@reads(app, "list")
def list_(run: AdminRun) -> Result:
    """List all quotas.

    Example: odradek quotas list
    """
    return _answer(run.admin.describe_client_quotas(None, run.left()))


@reads(app)
def describe(
    run: AdminRun,
    user: UserOption = None,
    client: ClientOption = None,
    ip: IpOption = None,
    user_defaults: UserDefaults = False,
    client_defaults: ClientDefaults = False,
    ip_defaults: IpDefaults = False,
) -> Result:
    """Show the quotas of a user, a client id, a user with a client id, or an address.

    For a user, this includes the user's quotas with each client id.

    Example: odradek quotas describe --user alice
    """
    whom = entity(
        (user, user_defaults, "user"), (client, client_defaults, "client"), (ip, ip_defaults, "ip")
    )
    return _answer(run.admin.describe_client_quotas(whom, run.left()))


@changes(app)
def alter(
    run: AdminRun,
    user: UserOption = None,
    client: ClientOption = None,
    ip: IpOption = None,
    user_defaults: UserDefaults = False,
    client_defaults: ClientDefaults = False,
    ip_defaults: IpDefaults = False,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="QUOTA=NUMBER",
            help=f"A quota to set; may be repeated. {', '.join(KEYS)}.",
        ),
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(metavar="QUOTA", help="A quota to remove; may be repeated."),
    ] = None,
) -> Result:
    """Set or remove quotas of a user, a client id, a user with a client id, or an address.

    With --dry-run, the brokers only check the request.

    Example: odradek quotas alter --user alice --set producer_byte_rate=1048576
    """
    whom = entity(
        (user, user_defaults, "user"), (client, client_defaults, "client"), (ip, ip_defaults, "ip")
    )
    new = wanted(set_ or (), unset or (), whom)
    run.admin.alter_client_quotas({whom: new}, run.left(), validate_only=run.dry_run)
    would = "Would set" if run.dry_run else "Set"
    away = "Would remove" if run.dry_run else "Removed"
    shown = [
        f"{away} {key} of {told(whom)}."
        if value is None
        else f"{would} {key} of {told(whom)} to {value:.15g} {KEYS[key]}."
        for key, value in new.items()
    ]
    done = {"dry_run": True} if run.dry_run else {}
    return Result({**done, "entity": _parts(whom), "quotas": new}, shown)


Given = tuple[str | None, bool, str]
"""Value of a flag, whether its --…-defaults flag is set, and the flag's name."""


def entity(user: Given, client: Given, ip: Given) -> ClientQuotaEntity:
    """Return the entity of a quota; raise a usage error if the flags name none."""
    names = []
    for name, default, flag in (user, client, ip):
        if name is not None and default:
            refuse(f"--{flag} and --{flag}-defaults can't be given together")
        if name == "":
            refuse(f"--{flag} is empty; for all without quotas of their own, use --{flag}-defaults")
        names.append(ClientQuotaEntity.DEFAULT if default else name)
    if not any(names):
        refuse(
            "no user, client or address is given: use --user, --client, --ip, "
            "--user-defaults, --client-defaults or --ip-defaults"
        )
    if names[2] and (names[0] or names[1]):
        refuse("--ip can't be given with --user or --client")
    return ClientQuotaEntity(*names)


def wanted(
    given: Iterable[str], away: Iterable[str], whom: ClientQuotaEntity
) -> dict[str, float | None]:
    """Return the quotas to set, with None for those to remove; raises `UsageError`."""
    found: dict[str, float | None] = {}
    for key, text in parse_words(given, "--set").items():
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not number >= 0 or math.isinf(number):
            refuse(f"--set {key}: expected a number from 0 on, not {text!r}")
        found[key] = number
    for key in away:
        if key in found:
            refuse(f"{key} is both set and removed")
        found[key] = None
    if not found:
        refuse("no change is given: use --set QUOTA=NUMBER or --unset QUOTA")
    keys = OF_CLIENTS if whom.ip is None else OF_ADDRESSES
    for key in found:
        if key not in keys:
            close = difflib.get_close_matches(key, keys, n=1)
            hint = f"did you mean {close[0]}?" if close else f"its quotas are {', '.join(keys)}"
            refuse(f"{told(whom)} has no quota {key!r}; {hint}")
    return found


def told(whom: ClientQuotaEntity) -> str:
    """Return the entity of a quota in words."""
    parts = []
    for what, name in (("user", whom.user), ("client id", whom.client_id), ("address", whom.ip)):
        if name is not None:
            default = name == ClientQuotaEntity.DEFAULT
            parts.append(f"any other {what}" if default else f"{what} {name}")
    return " with ".join(parts)


def _parts(whom: ClientQuotaEntity) -> dict[str, Any]:
    return {"user": whom.user, "client_id": whom.client_id, "ip": whom.ip}


def _answer(found: Quotas) -> Result:
    ordered = sorted(
        found.items(), key=lambda each: tuple(n or "" for n in _parts(each[0]).values())
    )
    rows = [
        (whom.user, whom.client_id, whom.ip, key, f"{value:.15g}", KEYS.get(key))
        for whom, quotas in ordered
        for key, value in sorted(quotas.items())
    ]
    heads = ("USER", "CLIENT-ID", "IP", "QUOTA", "VALUE", "UNIT")
    document = [{"entity": _parts(whom), "quotas": dict(quotas)} for whom, quotas in ordered]
    return Result({"quotas": document}, [ResultTable(heads, rows, "No quotas found.")])
