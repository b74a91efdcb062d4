"""Base of aiokafka's assignors: classes with a name.

In: nothing. Out: a base class for annotations. Odradek's assignors of the same names do the work; a
program's own class is rejected (`settings`). Must not: assign.
"""

from __future__ import annotations

from typing import ClassVar


class AbstractPartitionAssignor:
    """Base of the assignors; members of a group have to agree on `name`."""

    name: ClassVar[str]
