"""Workers, which call a function for each record, many records at a time.

    from odradek.workers import Workers, WorkFailedError

`Workers` and `AsyncWorkers` are in `odradek`, too; `WorkProgress` is what `progress()` returns.
`WorkFailedError` is raised when a record can't be processed.
"""

from __future__ import annotations

from odradek.common.public_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
