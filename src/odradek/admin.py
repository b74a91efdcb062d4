"""The admin clients, and the types of their arguments and results.

    from odradek.admin import ConfigResource, NewPartitions

`Admin`, `AsyncAdmin`, `AdminOptions` and `NewTopic` are in `odradek`, too. Errors are in
`odradek.errors`.
"""

from __future__ import annotations

from odradek.common.public_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
