"""Steps of a copy whose transaction is refused, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from tests.simulation.transactional import PROTOCOLS, Scene

from odradek.cli.copy.planning import CopyPlan
from odradek.cli.copy.writers import TransactionalWriter
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.errors import AbortableTransactionError
from odradek.common.errors.kafka import GroupAuthorizationError
from odradek.common.types import TopicPartition
from odradek.network.flow import START, Flow

ROWS = pa.table({"value": [b"7"], "partition": [0]}).to_batches()[0]


def refused_once(carry_out: Callable[..., Flow[Any]]) -> Callable[..., Flow[Any]]:
    """Return a replacement of `carry_out` whose first call is refused."""
    refusals = [GroupAuthorizationError("g")]

    def flow(*arguments: Any, **named: Any) -> Flow[Any]:
        yield START
        if refusals:
            raise refusals.pop()
        return (yield from carry_out(*arguments, **named))

    return flow


@PROTOCOLS
@pytest.mark.parametrize("records", [True, False])
def test_the_next_step_can_begin_after_a_refused_commit(
    version: int, records: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `records`, the step only reads the transaction markers of the source."""
    scene = Scene(version)
    plan = CopyPlan("s", "t", 1, "g", "mark", one_cluster=False)
    writer = TransactionalWriter(scene.uninitialised(), plan)
    assert writer.progress(restart=False) == {}
    requests = writer._producer._engine.transactions.requests  # type: ignore[union-attr]
    monkeypatch.setattr(requests, "commit_offsets", refused_once(requests.commit_offsets))
    if records:
        writer.write(ROWS)
    with pytest.raises(AbortableTransactionError):
        writer.commit({0: 2})
    writer.abort()
    writer.write(ROWS)
    writer.commit({0: 3})
    assert scene.visible() == [7]
    assert scene.committed(TopicPartition("t", 0)) == [OffsetAndMetadata(3, "mark")]
