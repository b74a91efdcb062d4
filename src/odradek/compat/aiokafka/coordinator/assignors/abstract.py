"""What aiokafka's assignors are: classes with a name.

In: nothing. Out: a base to name in annotations. The work is done by this package's assignors of the
same names; a class of a program's own is refused (`settings`). Must not: assign.
"""

from __future__ import annotations

from typing import ClassVar


class AbstractPartitionAssignor:
    """Base of the assignors; `name` is what members of the group agree on."""

    name: ClassVar[str]
