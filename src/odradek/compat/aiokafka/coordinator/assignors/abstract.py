"""Base class of aiokafka's assignors, which only have a name.

In: nothing. Out: a base class for annotations. Must not: assign; Odradek's assignors of the same
names do. `settings` rejects assignor classes that a program defines itself.
"""

from __future__ import annotations

from typing import ClassVar


class AbstractPartitionAssignor:
    """Base of the assignors; members of a group have to agree on `name`."""

    name: ClassVar[str]
