"""Play the broker's side of a SASL conversation with prepared responses."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from odradek.common.types import Address
from odradek.network.sasl.mechanism import Mechanism, WorkerCall

BROKER = Address("b1", 9092)


def talk(mechanism: Mechanism, answers: Sequence[bytes], seed: int = 1) -> list[bytes]:
    """Run a client's SASL conversation and return its tokens; run its worker calls at once."""
    conversation = mechanism.conversation(BROKER, random.Random(seed))
    sent: list[bytes] = []
    left = list(answers)
    heard: Any = None
    while True:
        try:
            if isinstance(heard, Exception):
                wanted = conversation.throw(heard)
            else:
                wanted = conversation.send(heard)
        except StopIteration:
            assert not left, "the mechanism ended before the broker"
            return sent
        if isinstance(wanted, WorkerCall):
            try:
                heard = wanted.function(*wanted.arguments)
            except Exception as error:
                heard = error
            continue
        sent.append(wanted)
        heard = left.pop(0)
