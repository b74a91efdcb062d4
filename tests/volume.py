"""How much of a long search a run makes.

`make test` makes a part of each, which is enough to notice what somebody breaks; the whole is made
by the long forms (`make fuzz-properties`, `make fuzz-interruptions`) and where a search must find
what was broken on purpose (`make broken-rules`, `make broken-bounds`). They set ODRADEK_WHOLE=1.
"""

from __future__ import annotations

import os

VARIABLE = "ODRADEK_WHOLE"
PART = 1 if os.environ.get(VARIABLE) else 8


def part(whole: int) -> int:
    """How many of so many cases."""
    return whole // PART
