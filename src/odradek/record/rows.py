"""Columns to one tuple per record, as cheaply as it can be done.

In: decoded columns and what all their rows share. Out: a list of tuples of the class that is asked
for. Only loops in C see single records. Must not know what the class is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import repeat
from typing import Any, TypeVar

from odradek.record.columns import Headers, RawHeaderColumn, RecordColumns

R = TypeVar("R", bound=tuple[Any, ...])


def build_rows(
    cls: type[R],
    topic: str,
    partition: int,
    columns: RecordColumns,
    leader_epochs: int | Sequence[int],
    unread: type[R] | None = None,
) -> list[R]:
    """Make a `cls` of each row: topic, partition, the six parts of a row, leader epoch.

    `leader_epochs` is one number for all rows, or one for each. The class must be a named tuple of
    exactly these fields: its own constructor isn't called, that would take as long as the rest.
    Rows whose headers are `RawHeaders` are of the class `unread`, where there is one.
    """
    a, b = columns.start, columns.start + columns.count
    no_headers: Headers = ()
    found = list(
        map(
            partial(tuple.__new__, cls),
            zip(
                repeat(topic, b - a),
                repeat(partition),
                columns.offsets[a:b],
                columns.timestamps_ms[a:b],
                columns.timestamp_types[a:b],
                repeat(None) if columns.keys is None else columns.keys.values(a, b),
                repeat(None) if columns.values is None else columns.values.values(a, b),
                repeat(no_headers) if columns.headers is None else columns.headers.lists(a, b),
                repeat(leader_epochs) if isinstance(leader_epochs, int) else leader_epochs,
                strict=False,
            ),
        )
    )
    if unread is not None and isinstance(columns.headers, RawHeaderColumn):
        for i, row in enumerate(found):
            if type(row[7]) is not tuple:
                found[i] = tuple.__new__(unread, row)
    return found
