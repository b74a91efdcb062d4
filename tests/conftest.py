"""For all tests: properties are searched the same way in every run, so a red run stays red; and all
output is searched for secrets.

What pytest collects is kept from the garbage collector: it would go through ten thousand tests
whenever one of them looks for what a dropped client leaves.

`HYPOTHESIS_PROFILE=explore` searches anew each time, for whoever hunts.
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
        # Hypothesis looks with the collector for who keeps its generator, which it makes with the
        # first examples; from 3.14 on it doesn't find that once what holds it is frozen.
        find(strategies.none(), lambda _: True)
        gc.enable()
        gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def no_trees_are_left() -> Iterator[None]:
    """A million nodes would make each collection of a later test take half a second."""
    yield
    forget()
