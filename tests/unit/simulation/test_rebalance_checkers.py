from __future__ import annotations

from odradek.clients.consumer.group.membership import MemberState
from odradek.simulation.checkers.rebalance_checkers import RejoinsAtOnce

STABLE, JOINS = MemberState.STABLE, MemberState.PREPARING_REBALANCE


def test_a_member_that_does_not_join_again_after_a_revocation_is_reported() -> None:
    check = RejoinsAtOnce()
    check.revoked(1.0, STABLE, 3)
    assert check.look(1.1, STABLE, 3) is None
    assert "remains in generation 3" in str(check.look(1.5, STABLE, 3))


def test_a_member_that_rejoins_or_stops_or_uses_the_eager_protocol_is_not_reported() -> None:
    check = RejoinsAtOnce()
    for state, generation in ((JOINS, 3), (STABLE, 4)):
        check.revoked(1.0, STABLE, 3)
        assert check.look(1.1, state, generation) is None
        assert check.look(2.0, STABLE, generation) is None
    check.revoked(1.0, STABLE, 3)
    check.excuse()
    assert check.look(2.0, STABLE, 3) is None
    check.revoked(1.0, JOINS, 3)  # with the eager protocol, a member joins after it revoked
    assert check.look(2.0, STABLE, 3) is None


def test_the_time_to_rejoin_begins_after_the_commits_before_a_revocation() -> None:
    check = RejoinsAtOnce()
    check.wait(0.5)
    check.revoked(1.0, STABLE, 3)
    check.wait(2.0)
    assert check.look(2.1, STABLE, 3) is None
    assert check.look(2.5, STABLE, 3) is not None
