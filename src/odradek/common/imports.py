"""Imports inside of calls, which an exception from outside may end at any place (R-HO-1).

In: names of modules. Out: they are loaded, or an error has the line to type for the extra that
brings them; and the interpreter's import lock is free whatever happened. CPython's importlib takes
that lock and lets go of it in Python: a signal handler that raises in between leaves it held, and
every later import of any other thread hangs for good.
Must not: import in a thread of its own, which no signal would reach: pyarrow 25 crashes once the
thread that loaded it has ended (apache/arrow#50471).
"""

from __future__ import annotations

import _imp
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from types import TracebackType

OPTIONAL = {
    "cryptography": ("PKCS12 stores, signed assertions and certificates for tests need", "stores"),
    "fastavro": ("Avro needs", "schemas"),
    "google": ("Protobuf needs", "schemas"),
    "jsonschema_rs": ("JSON Schema needs", "schemas"),
    "opentelemetry": ("Metrics and traces for OpenTelemetry need", "opentelemetry"),
    "prometheus_client": ("PrometheusCollector needs", "prometheus"),
    "pyarrow": ("Arrow data needs", "arrow"),
    "rich": ("The command odradek needs", "cli"),
    "typer": ("The command odradek needs", "cli"),
}
"""By the first part of a module's name: what needs it, in words, and our extra that brings it."""
DISTRIBUTIONS = {"google": "protobuf", "jsonschema_rs": "jsonschema-rs"}
"""Packages whose modules have other names."""
SHARED = ("google", "opentelemetry")
"""Names under which several distributions put their modules: one of them may be missing."""
_loaded: set[str] = set()
_amid: Callable[[], AbstractContextManager[object]] = nullcontext
IMPORTLIB = "<frozen importlib"


def loaded(*names: str) -> None:
    """Have modules imported, so that the statement which follows finds them.

    MissingExtraError: one of them belongs to an extra that isn't installed.
    """
    for name in names:
        if name not in _loaded or sys.modules.get(name) is None:  # pytest puts those back, for one
            with _amid():
                _load(name)


def keep_amid(amid: Callable[[], AbstractContextManager[object]]) -> None:
    """Have each import happen in the middle of what this gives."""
    global _amid
    _amid = amid


def _load(name: str) -> None:
    amid_another = _imp.lock_held()  # of what this has interrupted, perhaps: then it is not ours
    try:
        import_module(name)
        _loaded.add(name)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in OPTIONAL or (error.name != package and package not in SHARED):
            raise  # a part that lacks where the package is there: it is broken
        from odradek.common.errors import MissingExtraError  # which imports this module

        what, extra = OPTIONAL[package]
        named = DISTRIBUTIONS.get(package, package)
        raise MissingExtraError(
            f"{what} the package {named}: pip install 'odradek[{extra}]'"
        ) from None
    finally:
        if not amid_another:
            _let_go(sys.exc_info()[2])


def _let_go(trace: TracebackType | None) -> None:
    """Release what an interrupted import of this thread has left held; in most cases nothing."""
    while _imp.lock_held():
        try:
            _imp.release_lock()
        except RuntimeError:  # another thread's
            break
    while trace is not None:  # a module's own lock goes with the frame that took it
        if trace.tb_frame.f_code.co_filename.startswith(IMPORTLIB):
            trace.tb_frame.clear()
        trace = trace.tb_next
