"""The producer that writes the events of a consumer or an admin client to `events.topic`.

In: the settings of that producer. Out: a producer. Must not: be imported by the producer, which
passes its own class; import the producer before the first event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.api.producer import Producer


def event_producer(settings: dict[str, Any]) -> Producer:
    """Create a producer; imported here, so that most clients never import its module."""
    from odradek.api.producer import Producer

    return Producer(settings)
