"""Add SASL to random runs, and refuse credentials for some time.

In: a seed, a schedule's `session`. Out: the SASL settings of a cluster, the mechanism of its
clients. While a password is refused, existing connections work until they authenticate again; when
it is accepted again, all clients must recover. Must not draw from other random generators, so that
old seeds keep their runs.
"""

from __future__ import annotations

from odradek.common.secret import Secret
from odradek.network.sasl.mechanism import Credentials, Mechanism
from odradek.network.sasl.scram import Scram
from odradek.simulation.brokers.sasl_listener import SaslListener
from odradek.simulation.world.virtual_time import derived_rng
from odradek.simulation.world.world import World

MECHANISM = "SCRAM-SHA-256"
USER = "simulated"
SHOWN = "no secret"
SESSIONS = (0.0, 1.2, 2.5, 10.0)
"""Session lifetimes in seconds; 0: sessions don't expire."""
SHARE = 0.1
"""Share of all seeds whose clients authenticate with SASL."""


def random_session(seed: int) -> float | None:
    """Return the session lifetime for a schedule; None if its clients don't authenticate."""
    rng = derived_rng(seed, "schedule/sasl")
    return rng.choice(SESSIONS) if rng.random() < SHARE else None


def listener(world: World, session: float, heal_at: float) -> SaslListener:
    """Return a run's SASL settings; in half of the runs, passwords are refused for some time."""
    made = SaslListener(users={USER: SHOWN}, session_lifetime=session, mechanisms=(MECHANISM,))
    rng = world.rng("sasl")
    if rng.random() < 0.5 and heal_at > 0.0:
        begin, end = sorted(rng.uniform(0.0, heal_at) for _ in range(2))
        world.at(begin, made.users.clear)
        world.at(end, lambda: made.users.update({USER: SHOWN}))
    return made


def mechanism() -> Mechanism:
    """Return the clients' SASL mechanism: SCRAM, with the run's user and password."""
    return Scram(MECHANISM, Credentials(USER, Secret(SHOWN)))
