"""Read a properties file of a Java client or of librdkafka, for use as a client's configuration.

In: a path. Out: a dict for `Producer`, `Consumer` or `Admin`. Must not: show a value, or drop a
setting silently: a warning names each setting without effect.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec

from odradek.clients.caller_flow import shorten
from odradek.common.arguments import refusal, shown
from odradek.common.config import ADMIN, CONSUMER, PRODUCER, Config
from odradek.common.errors import ConfigurationError
from odradek.common.options.option_aliases import sealed
from odradek.common.secret import clear_locals, private

logger = logging.getLogger("odradek")

P = ParamSpec("P")

_SETTING = r"\s*[\w.-]+[ \t]*[=:]|[^\n]*\n"
_HOST_PORT = r"(\w+://)?[\w.\[\]:-]+:\d{1,5}(,[\w.\[\]:-]+:\d{1,5})*"
"""Regular expression, not compiled here, because most clients don't read a file."""
LARGEST = 1 << 20
"""Maximum size of a settings file in bytes."""
LONGEST_PATH = 1000
"""Maximum length of a path that is shown in an error."""

Settings = Mapping[str, Any] | str | os.PathLike[str] | None
"""Type of a client's configuration: options, or the path of a properties file."""


def settings(given: Settings, client: str) -> dict[str, Any]:
    """Return a client's options, from a dict or a properties file, with secrets wrapped."""
    if given is None or isinstance(given, Mapping):
        return sealed(given)
    found, problem = _tried(given, client)
    given = None  # tracebacks show it: it may have secrets
    if problem is not None:
        raise problem.with_traceback(None)
    return found


def with_settings(client: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Decorate a client's `__init__`: convert its settings and keywords to a `Config`."""

    def decorated(init: Callable[P, None]) -> Callable[P, None]:
        own = getattr(init, "__kwdefaults__", None) or {}

        @wraps(init)
        def construct(self: Any, config: Any = None, **keywords: Any) -> None:
            mine = {name: keywords.pop(name) for name in own if name in keywords}
            handled = sys.exception()
            keywords = sealed(keywords)  # first, as tracebacks show them
            try:
                config = settings(config, client)
                config = Config(client, config, **keywords)
                init(self, config, **mine)
            except Exception as error:
                # Any value may contain a password, such as user:password@ in an address.
                config = keywords = mine = {}
                clear_locals(error, handled)
                shorten(error)
                raise error  # with a bare `raise`, a traceback would skip this

        return construct  # type: ignore[return-value]

    return decorated


def _tried(given: Any, client: str) -> tuple[dict[str, Any], Exception | None]:
    try:
        is_path = isinstance(given, str | os.PathLike)
        return read_properties(given, client) if is_path else sealed(given), None
    except ConfigurationError as error:
        return {}, error


@private
def read_properties(path: str | os.PathLike[str], client: str | None = None) -> dict[str, Any]:
    """Read a file in Java's properties format; librdkafka's `name=value` files work, too.

    If a file is for several kinds of clients, set `client` to "producer", "consumer" or "admin" to
    leave out the options of other kinds. Settings without effect in Odradek (serializers, metrics,
    librdkafka's queues …) are left out, and a warning names them. Unknown names are kept, so that
    the client raises an error for them. Passwords and keys are returned as `Secret`, which never
    prints its text.

    Raises `ConfigurationError` if the file can't be read, or if a line isn't a setting; the text
    has the number of the line.
    """
    place = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(place, str) or not place:
        raise refusal("path", "the path of a file (str or Path)", path)
    if client is not None and (
        not isinstance(client, str) or client not in (PRODUCER, CONSUMER, ADMIN)
    ):
        raise ConfigurationError(f"client must be producer, consumer or admin, not {shown(client)}")
    found, problem = _read(_text(place))
    if problem is not None:
        raise ConfigurationError(f"{place}, {problem}")
    from odradek.common.options.properties import idle_names

    idle = idle_names(found, client)
    if idle:
        logger.warning(
            "%s: these settings have no effect in this client: %s", place, ", ".join(sorted(idle))
        )
    return {name: value for name, value in found.items() if name not in idle}


def _read(text: str) -> tuple[dict[str, Any], str | None]:
    """Return the settings with secrets wrapped, or an error text, which the caller raises."""
    from odradek.common.options.properties import bad_line, parse_properties

    problem = bad_line(text)
    return ({} if problem else sealed(parse_properties(text))), problem


def _text(place: str) -> str:
    if re.fullmatch(_HOST_PORT, place):
        raise ConfigurationError(
            f"{place} is taken as the path of a properties file; to set brokers, pass "
            f'{{"bootstrap.servers": "{place}"}}'
        )
    from pathlib import Path  # most clients don't need this import

    try:
        with Path(place).open("rb") as file:  # limited: /dev/zero never ends
            data = file.read(LARGEST + 1)
        if len(data) <= LARGEST:
            return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
        problem = f"isn't a properties file: it has more than {LARGEST} bytes"
    except OSError as error:
        problem = (
            f"can't be read: {error.strerror or error} (a str is the path of a properties file, "
            "not a topic)"
        )
    except UnicodeDecodeError as error:
        problem = f"isn't UTF-8 text: {error.reason} at byte {error.start}"
    except ValueError:  # a NUL or an unpaired surrogate
        raise ConfigurationError(f"path must be the path of a file, not {shown(place)}") from None
    # Text that isn't a path may be the file's content, with a password in it.
    is_path = len(place) < LONGEST_PATH and not re.match(_SETTING, place)
    where = place if is_path else f"path (a str of {len(place)} characters)"
    raise ConfigurationError(f"{where} {problem}")
