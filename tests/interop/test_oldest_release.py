"""A core of these tests on the oldest release that is tried, 3.9; all others run on the newest.

The tests are those of the other modules, with this one's cluster.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.interop.test_mixed_groups import test_with_librdkafka_and_java as test_mixed_groups
from tests.interop.test_they_write import consumer as consumer
from tests.interop.test_they_write import test_we_read_all_that_librdkafka_wrote as test_they_write
from tests.interop.test_transactions import (
    test_each_reads_what_the_others_committed_and_takes_over_their_id as test_transactions,
)
from tests.interop.test_we_write import test_librdkafka_reads_all_of_it as test_we_write

from odradek.testing import LocalCluster

__all__ = ["consumer", "test_mixed_groups", "test_they_write", "test_transactions", "test_we_write"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=1, version="3.9") as running:
        assert running.version.startswith("3.9.")
        yield running
