"""The settings of serializing clients: functions, or builders that make them.

In: a configuration with `key.serializer`, `value.deserializer.builder` and the like. Out: the two
functions, those that have to be closed with the client, and what is left for the client. Must not:
close what the program made itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Converters:
    """What turns keys and values into bytes, or back."""

    key: Callable[[Any, Any], Any] | None = None
    value: Callable[[Any, Any], Any] | None = None
    owned: list[Any] = field(default_factory=list)
    """Those that were built here."""

    def resolve_by(self, cluster_id: Callable[[], Any]) -> None:
        """Tell those that want to know it how to ask for the cluster's id."""
        for converter in (self.key, self.value):
            tell = getattr(converter, "set_cluster_id_resolver", None)
            if tell is not None:
                tell(cluster_id)

    def close(self) -> None:
        """Close those that were built here, once."""
        owned, self.owned = self.owned, []
        for converter in owned:
            close = getattr(converter, "close", None)
            if close is not None:
                close()


def converters(conf: dict[str, Any], kind: str) -> tuple[Converters, dict[str, Any]]:
    """The converters of a configuration, and the rest of it; `kind` is serializer or deserializer.

    Raises `ValueError` where one is given beside its builder.
    """
    rest, found = dict(conf), Converters()
    for part in ("key", "value"):
        name = f"{part}.{kind}"
        made, builder = rest.pop(name, None), rest.pop(f"{name}.builder", None)
        if made is not None and builder is not None:
            raise ValueError(f"{name} and {name}.builder can't be given both")
        if builder is not None:
            made, rest = builder.build(rest, part == "key")
            found.owned.append(made)
        setattr(found, part, made)
    return found, rest
