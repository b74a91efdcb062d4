"""Replace a library by our modules, and report each of its tests: shared by all libraries.

In: `PEER_REPORT` (a file) from tools/peer_suites.py; a library's name. Out: importing the library
returns the modules of `odradek.compat`; each test's name, outcome and reason as a line of JSON.
Must not: depend on a particular library.
"""

import asyncio
import inspect
import json
import os
import pkgutil
import signal
import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

# Tests send themselves SIGINT, which a shell's background jobs ignore.
signal.signal(signal.SIGINT, signal.default_int_handler)


def stand_in(library: str) -> ModuleType:
    """Let `import library` return our modules; the library itself provides the other modules."""
    if os.environ.get("PEER_THEMSELVES"):
        return import_module(library)
    ours = f"odradek.compat.{library}"
    root = Path(next(iter(find_spec(library).submodule_search_locations)))
    package = import_module(ours)
    names = [ours, *(found.name for found in pkgutil.walk_packages(package.__path__, ours + "."))]
    for name in names:
        module, alias = import_module(name), library + name.removeprefix(ours)
        sys.modules[alias] = module
        if hasattr(module, "__path__"):
            module.__path__ = [*module.__path__, str(root.joinpath(*alias.split(".")[1:]))]
    return package


class Absent(MetaPathFinder, Loader):
    """Provides modules that tests import and we don't have; a test that uses one is skipped."""

    def __init__(self, modules: dict[str, str]) -> None:
        self.modules = modules
        """Names of modules, with the reason why tests that use one (or a submodule) are skipped."""

    def find_spec(self, name, path=None, target=None):
        """Implement `MetaPathFinder.find_spec`."""
        if any(name == one or name.startswith(one + ".") for one in self.modules):
            return ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        """Create a module in which every name exists."""
        why = next(w for one, w in self.modules.items() if spec.name.startswith(one))
        module = ModuleType(spec.name)
        module.__path__ = []
        module.__getattr__ = lambda name: absent(name, why)
        return module

    def exec_module(self, module):
        """Do nothing: the module has no code."""


class Skipping(type):
    """Metaclass of classes that don't exist here; using such a class skips the test."""

    def __getattr__(cls, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return pytest.skip(cls.why)

    def __call__(cls, *_: object, **__: object) -> object:
        return pytest.skip(cls.why)


def absent(name: str, why: str) -> type:
    """Return a class with this name; a test that uses the class is skipped."""
    if name.startswith("__"):
        raise AttributeError(name)
    return Skipping(name, (), {"why": why})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests that are listed with a reason."""
    reasons = json.loads(Path(os.environ["PEER_EXCUSED"]).read_text())
    for item in items:
        name = item.nodeid.partition("/")[2]
        label = os.environ["PEER_LABEL"]
        names = label + name, name, name.partition("[")[0], name.partition("::")[0]
        why = next((reasons[one] for one in names if one in reasons), "")
        if why and not os.environ["PEER_ALL"]:
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run tests that are coroutine functions."""
    if not inspect.iscoroutinefunction(pyfuncitem.function):
        return None
    names = inspect.signature(pyfuncitem.function).parameters
    asyncio.run(pyfuncitem.obj(**{n: pyfuncitem.funcargs[n] for n in names if n != "self"}))
    return True


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    """Write a test's outcome to the report."""
    report = (yield).get_result()
    if report.when == "call" or report.outcome != "passed":
        why = ""
        if report.skipped:
            why = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else "")
        elif report.failed:
            why = call.excinfo.exconly().splitlines()[0][:200]
        name = os.environ["PEER_LABEL"] + item.nodeid.partition("/")[2]
        with Path(os.environ["PEER_REPORT"]).open("a") as lines:
            lines.write(json.dumps([name, report.outcome, why.removeprefix("Skipped: ")]) + "\n")
