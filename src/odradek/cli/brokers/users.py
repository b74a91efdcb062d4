"""`odradek users`: users who log in with a password (SCRAM), as kafka-configs does for users.

In: names, mechanisms, passwords. Out: credentials that were set, shown or deleted. Must not: show a
password; the cluster only stores hashes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from odradek.cli.frame.argument_values import listed, one_word
from odradek.cli.frame.commands import AdminRun, changes, destroys, reads
from odradek.cli.frame.overviews import overview
from odradek.cli.frame.passwords import read_password
from odradek.cli.frame.results import Result, ResultTable, counted
from odradek.clients.admin.users import (
    LEAST_ITERATIONS,
    MECHANISMS,
    MOST_ITERATIONS,
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from odradek.common.errors import KafkaError
from odradek.common.errors.kafka import DuplicateResourceError, ResourceNotFoundError

app = overview("SCRAM users: list, describe, create, alter, delete.")

User = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]
Users = Annotated[list[str], typer.Argument(metavar="USER", help="User names.")]
Mechanism = Annotated[
    list[str] | None,
    typer.Option(help=f"{', '.join(MECHANISMS)}; may be repeated."),
]
Iterations = Annotated[
    int,
    typer.Option(
        min=LEAST_ITERATIONS,
        max=MOST_ITERATIONS,
        metavar="N",
        help="Iterations of the password's hash.",
    ),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(help="A file whose first line is the password; - is standard input."),
]
PasswordEnv = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="An environment variable with the password."),
]
PasswordVisible = Annotated[
    str | None,
    typer.Option(
        metavar="PASSWORD",
        help="The password itself: other users of this machine can see it in the process list, and "
        "the shell keeps it in its history.",
    ),
]
Credentials = Mapping[str, tuple[ScramCredentialInfo, ...]]


@reads(app, "list")
def list_(run: AdminRun) -> Result:
    """List the SCRAM users with their mechanisms and iterations.

    Example: odradek users list
    """
    found = run.admin.describe_user_scram_credentials(None, run.left())
    empty = "No SCRAM users found."
    return Result(_document(found), [_table(found, empty)])


@reads(app)
def describe(run: AdminRun, users: Users) -> Result:
    """Show the SCRAM mechanisms and iterations of users.

    Example: odradek users describe alice
    """
    found, failed = run.each(lambda: run.admin.describe_user_scram_credentials(users, run.left()))
    return Result(_document(found), [_table(found)], failed)


@changes(app)
def create(
    run: AdminRun,
    user: User,
    mechanism: Mechanism = None,
    iterations: Iterations = LEAST_ITERATIONS,
    password_file: PasswordFile = None,
    password_env: PasswordEnv = None,
    password_visible: PasswordVisible = None,
) -> Result:
    """Create a SCRAM user; asks for the password unless it is given.

    The default mechanism is SCRAM-SHA-512.

    Example: odradek users create alice --password-file alice.txt
    """
    if user in _there(run, [user]):
        raise DuplicateResourceError(
            f"user {user} already exists; to change it, use odradek users alter"
        )
    wanted = _mechanisms(mechanism) or ["SCRAM-SHA-512"]
    where = (password_file, password_env, password_visible)
    return _set(run, user, wanted, iterations, where, "created")


@changes(app)
def alter(
    run: AdminRun,
    user: User,
    mechanism: Mechanism = None,
    iterations: Iterations = LEAST_ITERATIONS,
    password_file: PasswordFile = None,
    password_env: PasswordEnv = None,
    password_visible: PasswordVisible = None,
) -> Result:
    """Change a user's password, or add one for another mechanism.

    Without --mechanism, this changes the password of all mechanisms of the user.

    Example: odradek users alter alice --password-env NEW_PASSWORD
    """
    there = _there(run, [user])
    if user not in there:
        raise ResourceNotFoundError(
            f"there is no user {user}; to create it, use odradek users create"
        )
    wanted = _mechanisms(mechanism) or [one.mechanism for one in there[user]]
    where = (password_file, password_env, password_visible)
    return _set(run, user, wanted, iterations, where, "altered")


@destroys(app)
def delete(run: AdminRun, users: Users, mechanism: Mechanism = None) -> Result:
    """Delete users' passwords: those of one mechanism, or all.

    Example: odradek users delete alice --mechanism SCRAM-SHA-256 --yes
    """
    names, only = list(dict.fromkeys(users)), _mechanisms(mechanism)
    there, failed = _looked_up(run, names)
    gone = {
        user: [one.mechanism for one in infos if not only or one.mechanism in only]
        for user, infos in there.items()
    }
    for user, mechanisms in gone.items():
        if not mechanisms:
            failed[user] = ResourceNotFoundError(f"user {user} has no {' or '.join(only)}")
    gone = {user: mechanisms for user, mechanisms in gone.items() if mechanisms}
    if run.dry_run:
        shown = [f"Would delete {', '.join(of)} of user {user}." for user, of in gone.items()]
        return Result({"dry_run": True, "would_delete": gone}, shown, failed)
    if gone:
        run.confirm(f"delete the passwords of {counted(len(gone), 'user')}: {listed(gone)}")
        changes = [UserScramCredentialDeletion(user, m) for user, of in gone.items() for m in of]
        done, bad = run.each(
            lambda: run.admin.alter_user_scram_credentials(changes, run.left()), gone
        )
        gone = {user: gone[user] for user in done}
        failed |= bad
    shown = [f"Deleted {', '.join(of)} of user {user}." for user, of in gone.items()]
    return Result({"deleted": gone}, shown, failed)


def _mechanisms(given: list[str] | None) -> list[str]:
    found = [one_word("--mechanism", word, tuple(MECHANISMS)) for word in given or ()]
    return list(dict.fromkeys(found))


def _looked_up(run: AdminRun, users: list[str]) -> tuple[dict[str, Any], dict[str, KafkaError]]:
    return run.each(lambda: run.admin.describe_user_scram_credentials(users, run.left()))


def _there(run: AdminRun, users: list[str]) -> dict[str, Any]:
    """Return credentials by user, without users that have none; raise all other errors."""
    found, failed = _looked_up(run, users)
    for error in failed.values():
        if not isinstance(error, ResourceNotFoundError):
            raise error
    return found


def _set(
    run: AdminRun,
    user: str,
    mechanisms: list[str],
    iterations: int,
    where: tuple[Path | None, str | None, str | None],
    done: str,
) -> Result:
    """Set a user's password for these SCRAM mechanisms."""
    if run.dry_run:
        shown = [f"Would set the password of user {user} for {m}." for m in mechanisms]
        document = {"dry_run": True, "user": user, "mechanisms": mechanisms}
        return Result(document, shown)
    run.close()  # its progress message must not interrupt the prompt
    password = read_password(user, *where)
    run.again()
    upsertions = [
        UserScramCredentialUpsertion(user, mechanism, password.reveal(), iterations)
        for mechanism in mechanisms
    ]
    run.admin.alter_user_scram_credentials(upsertions, run.left())
    text = f"{done.capitalize()} user {user}: {', '.join(mechanisms)}, {iterations} iterations."
    return Result({done: user, "mechanisms": mechanisms, "iterations": iterations}, [text])


def _document(found: Credentials) -> dict[str, Any]:
    return {"users": dict(found)}


def _table(found: Credentials, empty: str = "") -> ResultTable:
    rows = [(u, one.mechanism, one.iterations) for u, infos in found.items() for one in infos]
    return ResultTable(("USER", "MECHANISM", "ITERATIONS"), rows, empty)
