"""Configure all tests: fixed Hypothesis seeds and a search for secrets in all output.

Property tests search the same examples in every run, so that a failure is reproducible;
`HYPOTHESIS_PROFILE=explore` searches with new random examples. The garbage collector skips the
objects of pytest's collection (thousands of tests), because tests of dropped clients call it often.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator

import pytest
from hypothesis import find, settings, strategies
from tests.source_trees import forget
from tests.volume import examples

pytest_plugins = ["tests.planted_secrets"]

settings.register_profile(
    "steady", derandomize=True, deadline=None, database=None, max_examples=examples(100)
)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    gc.disable()
    try:
        return (yield)
    finally:
        # Hypothesis creates its random generator with the first examples and finds the references
        # to it with the garbage collector, which from Python 3.14 on fails after gc.freeze().
        find(strategies.none(), lambda _: True)
        gc.enable()
        gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _drop_syntax_trees() -> Iterator[None]:
    """Drop the syntax trees: a million nodes slow down each later garbage collection by 0.5 s."""
    yield
    forget()
