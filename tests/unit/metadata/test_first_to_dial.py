"""R-MD-2: a client without connections gets the choice that `choose` makes, by a shorter way."""

from __future__ import annotations

import math
import random

import pytest

from odradek.clients.client_engine import ClientEngine
from odradek.common.config import CONSUMER, Config
from odradek.common.types import Address
from odradek.metadata.candidates import Candidates
from odradek.metadata.cluster import Broker, Cluster
from odradek.metadata.least_loaded_node import Action, choose
from odradek.metadata.round import Round


def engine_with(rng: random.Random) -> tuple[ClientEngine, list[Address]]:
    """An engine that knows some brokers, with made-up records of dials and failures."""
    starts = [Address(f"b{i}", 1) for i in range(rng.randrange(1, 4))]
    brokers = [Address(f"k{i}", 1) for i in range(rng.randrange(5))]
    brokers += [a for a in starts if rng.random() < 0.5]
    rng.shuffle(brokers)
    config = Config(CONSUMER, {"bootstrap.servers": ",".join(str(a) for a in starts)})
    engine = ClientEngine(config, rng)
    if rng.random() < 0.8:
        named = {i: Broker(i, a, None) for i, a in enumerate(brokers)}
        engine.metadata.snapshot = Cluster("c", named)
    for address in {*starts, *brokers}:
        if rng.random() < 0.8:
            state = engine.network.states.state(address)
            state.last_dial = rng.choice((-math.inf, 1.0, 2.0, 3.0))
            state.backoff_until = rng.choice((-math.inf, 9.0, 10.0, 11.0, 12.0))
            state.dial_failed = rng.random() < 0.5
    engine.network.governor.again_at = rng.choice((-math.inf, 9.5, 10.5))
    return engine, [*starts, *brokers]


@pytest.mark.parametrize("seed", range(400))
def test_it_is_the_choice_among_all_candidates(seed: int) -> None:
    rng = random.Random(seed)
    engine, addresses = engine_with(rng)
    candidates = Candidates(engine.network, engine.metadata, engine.updater.bootstrap)
    failed = dict.fromkeys(a for a in addresses if rng.random() < 0.4)
    rebootstrapping = rng.random() < 0.5
    dial_at = rng.choice((0.0, 9.9, 10.2, 13.0))
    round_ = Round(1, dict(failed))
    found = candidates.first_to_dial(round_, 10.0, rebootstrapping=rebootstrapping, dial_at=dial_at)
    everybody = candidates.of_round(Round(1, dict(failed)), 10.0, rebootstrapping=rebootstrapping)
    if not everybody:
        assert found is None
        return
    expected = choose(everybody, 10.0, dial_at=dial_at)
    assert found is not None
    assert (found.action, found.until) == (expected.action, expected.until)
    if expected.action is Action.DIAL:
        assert found.candidate is not None
        assert expected.candidate is not None
        assert found.candidate.address == expected.candidate.address
        assert found.candidate.bootstrap == expected.candidate.bootstrap
