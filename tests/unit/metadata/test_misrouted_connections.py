"""R-RB-3, R-RB-8: NOT_LEADER errors of the broker that metadata names cause one rebootstrap."""

from __future__ import annotations

from odradek.common.types import Address
from odradek.metadata.bootstrap import UnexpectedBrokers

ONE, OTHER = Address("one", 9092), Address("other", 9092)
LONG_AGO = 60.0


def test_repeated_not_leader_errors_at_one_address_cause_one_rebootstrap() -> None:
    misled = UnexpectedBrokers(1.0)
    assert misled.starts_again(ONE, 1, LONG_AGO)
    assert not misled.starts_again(ONE, 1, LONG_AGO)
    assert misled.starts_again(ONE, 2, LONG_AGO)  # metadata names another broker there
    assert misled.starts_again(ONE, 1, LONG_AGO)
    misled.led_right(ONE)
    misled.led_right(OTHER)
    assert misled.starts_again(ONE, 1, LONG_AGO)  # the expected broker has answered since


def test_a_rebootstrap_because_of_another_address_waits_for_the_minimum_interval() -> None:
    misled = UnexpectedBrokers(1.0)
    assert not misled.starts_again(OTHER, 2, 0.9)
    assert misled.starts_again(OTHER, 2, 1.0)
