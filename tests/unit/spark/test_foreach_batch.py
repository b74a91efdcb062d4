"""`write_batch`: the options of the write, and errors if the query or batch is unknown."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.spark import write_batch
from odradek.spark.checkpoint_errors import OptionError
from odradek.spark.sink.sink_messages import QUERY_ID

OPTIONS = {"kafka.bootstrap.servers": "h:1", "topic": "t"}


class Frame:
    """A fake DataFrame and its writer; `_sc` has the local properties of Spark's thread."""

    def __init__(self, query: str | None) -> None:
        self.query = query
        self.given: dict[str, Any] = {}
        self.written: dict[str, Any] | None = None
        self.sparkSession = self.write = self._sc = self

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802
        return self.query if name == QUERY_ID else None

    def format(self, name: str) -> Frame:
        assert name == "odradek"
        return self

    def options(self, **given: Any) -> Frame:
        self.given |= given
        return self

    def mode(self, name: str) -> Frame:
        assert name == "append"
        return self

    def save(self) -> None:
        self.written = self.given


def written(query: str | None, **more: str) -> dict[str, Any]:
    frame: Any = Frame(query)
    write_batch(frame, 4, {**OPTIONS, **more})
    found: dict[str, Any] = frame.written
    return {name: value for name, value in found.items() if name not in OPTIONS}


def test_write_batch_passes_the_query_id_and_the_batch_number() -> None:
    assert written("q-1") == {"delivery": "exactly_once", "jobId": "q-1", "batchId": 4}
    assert written("q-1", sinkName="b")["sinkName"] == "b"
    named = written(None, jobid="mine", delivery="EXACTLY_ONCE")
    assert (named["jobId"], named["batchId"], named["delivery"]) == ("mine", 4, "exactly_once")


def test_at_least_once_delivery_needs_no_query_id() -> None:
    assert written(None, delivery="at_least_once") == {"delivery": "at_least_once"}


def test_exactly_once_without_a_query_id_or_job_id_is_rejected() -> None:
    frame: Any = Frame(None)
    with pytest.raises(OptionError, match="Set option jobId to a name that stays the same"):
        write_batch(frame, 0, OPTIONS)
    del frame._sc  # Spark Connect's DataFrames have no `_sc`
    with pytest.raises(OptionError, match="Spark Connect"):
        write_batch(frame, 0, OPTIONS)
    assert frame.written is None


@pytest.mark.parametrize("number", [OPTIONS, "0", None, True])
def test_a_batch_id_that_is_not_an_integer_raises_type_error(number: Any) -> None:
    frame: Any = Frame("q")
    with pytest.raises(
        TypeError, match=r"write_batch\(frame, batch_id, options\): batch_id must be"
    ):
        write_batch(frame, number, OPTIONS)
