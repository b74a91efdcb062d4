"""Find the message classes of an API, and import their module on first use.

In: an API key. Out: the request class (its `RESPONSE` is the response class), or Kafka's name of
the API. Must not: import a message module early, as `import odradek` must be quick.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from odradek.common.errors import UnsupportedFeatureError
from odradek.protocol.api_keys import API_NAMES, FLEXIBLE_FROM, GENERATED
from odradek.protocol.message import Request

__all__ = ["API_NAMES", "FLEXIBLE_FROM", "api_name", "request_class"]

_classes: dict[int, type[Request[Any]]] = {}


def api_name(api_key: int) -> str:
    """Return Kafka's name of an API, for texts; for an unknown API, a text with its key."""
    return API_NAMES.get(api_key, f"API {api_key}")


def request_class(api_key: int) -> type[Request[Any]]:
    """Return the request class of an API.

    Raises UnsupportedFeatureError if this release has no messages for the API.
    """
    found = _classes.get(api_key)
    if found is None:
        name = api_name(api_key)
        if name not in GENERATED:
            raise UnsupportedFeatureError(f"the API {name} (API key {api_key}) isn't supported yet")
        module = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
        home = import_module(f"odradek.protocol.messages.{module}")
        found = getattr(home, f"{name}Request")
        _classes[api_key] = found
    return found
