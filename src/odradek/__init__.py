"""Kafka client that keeps working while its cluster fails, moves and returns.

    import odradek

    with odradek.Producer({"bootstrap.servers": "localhost:9092"}) as producer:
        producer.send("flights", value=b"JFK", key=b"N14228").result(timeout=10)

Every public class and error can be imported from here. Each is loaded on first use, so `import
odradek` is fast. pyarrow is imported by the first call that needs it.
"""

from __future__ import annotations

import importlib

from odradek.api.public_names import HOMES

__version__ = "0.2.0"

__all__ = ["__version__", *HOMES]  # all are text


def __getattr__(name: str) -> object:
    if name not in HOMES:
        from odradek.common.options.habits import missing_name

        raise missing_name(__name__, name)
    value: object = getattr(importlib.import_module(HOMES[name]), name)
    globals()[name] = value
    return value


def load_ipython_extension(shell: object) -> None:
    """Show Arrow schemas and results as tables in a notebook; called by `%load_ext odradek`."""
    from odradek.common.notebooks.display import show_arrow

    show_arrow(shell)


def __dir__() -> list[str]:
    return sorted(__all__)
