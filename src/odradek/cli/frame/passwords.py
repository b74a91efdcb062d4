"""Read a password from a file, the environment or the terminal.

In: the flags' values. Out: the password, wrapped in a `Secret`. On a terminal, the user types it
twice, without echo. Must not: print the password, or read it from the command line, except for the
flag whose name says so.
"""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path

from odradek.cli.console.properties import refuse
from odradek.common.secret import Secret

STANDARD_INPUT = "-"
LONGEST = 4096
"""Maximum length of a password, in characters."""


def read_password(
    user: str, file: Path | None, variable: str | None, visible: str | None
) -> Secret:
    """Return the password; raise a usage error if there is none."""
    given = [one for one in (file, variable, visible) if one is not None]
    if len(given) > 1:
        refuse("use only one of --password-file, --password-env, --password-visible")
    if file is not None:
        found = _first_line(file)
    elif variable is not None:
        found = os.environ.get(variable, "")
        if not found:
            refuse(f"--password-env: the environment variable {variable} is not set, or empty")
    elif visible is not None:
        found = visible
    else:
        found = _asked(user)
    if not found:
        refuse(f"the password of user {user!r} is empty")
    return Secret(found)


def _first_line(file: Path) -> str:
    try:
        if str(file) == STANDARD_INPUT:
            line = sys.stdin.readline(LONGEST + 1)
        else:
            with file.open(encoding="utf-8") as text:  # limited below: a device may be endless
                line = text.readline(LONGEST + 1)
    except OSError as error:
        refuse(f"--password-file: {file} can't be read: {error.strerror or error}")
    except UnicodeDecodeError as error:
        refuse(f"--password-file: {file} isn't UTF-8 text: {error.reason}")
    if len(line) > LONGEST:
        refuse(f"--password-file: the first line of {file} has more than {LONGEST} characters")
    return line.rstrip("\r\n")


def _asked(user: str) -> str:
    if sys.stdin is None or not sys.stdin.isatty():
        refuse(
            f"there is no terminal to ask for the password of user {user!r}: use "
            "--password-file FILE (- is standard input) or --password-env NAME"
        )
    found = getpass.getpass(f"Password of user {user}: ")
    if getpass.getpass("Repeat the password: ") != found:
        refuse("the two passwords differ")
    return found
