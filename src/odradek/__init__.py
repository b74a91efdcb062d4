"""Kafka client that keeps working while its cluster fails, moves and returns.

    import odradek

    with odradek.Producer({"bootstrap.servers": "localhost:9092"}) as producer:
        producer.send("flights", value=b"JFK", key=b"N14228").result(timeout=10)

The clients, what they send and return, and the errors that most programs catch are imported from
here. Other names are in `odradek.errors` (every error), `odradek.admin`, `odradek.monitoring`,
`odradek.serialization`, `odradek.types` and `odradek.workers`, which need no import of their own,
and in `odradek.spark` and `odradek.testing`, which do. Each name is loaded on first use, so `import
odradek` is fast. pyarrow is imported by the first call that needs it.
"""

from __future__ import annotations

from odradek.common.public_names import lazy_names

__version__ = "0.2.0"

_NAMES, __getattr__, __dir__ = lazy_names(__name__)
__all__ = ["__version__", *_NAMES]  # all are text


def load_ipython_extension(shell: object) -> None:
    """Show Arrow schemas and results as tables in a notebook; called by `%load_ext odradek`."""
    from odradek.common.notebooks.display import show_arrow

    show_arrow(shell)
