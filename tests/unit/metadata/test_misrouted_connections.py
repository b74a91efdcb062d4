"""R-RB-3, R-RB-8: what a broker says that isn't meant leads to the bootstrap addresses, once."""

from __future__ import annotations

from odradek.common.types import Address
from odradek.metadata.bootstrap import UnexpectedBrokers

ONE, OTHER = Address("one", 9092), Address("other", 9092)
LONG_AGO = 60.0


def test_an_address_that_goes_on_saying_it_is_a_reason_once() -> None:
    misled = UnexpectedBrokers(1.0)
    assert misled.starts_again(ONE, 1, LONG_AGO)
    assert not misled.starts_again(ONE, 1, LONG_AGO)
    assert misled.starts_again(ONE, 2, LONG_AGO)  # the metadata names another broker there now
    assert misled.starts_again(ONE, 1, LONG_AGO)
    misled.led_right(ONE)
    misled.led_right(OTHER)
    assert misled.starts_again(ONE, 1, LONG_AGO)  # the right broker was there meanwhile


def test_after_any_start_another_address_has_to_wait_for_its_turn() -> None:
    misled = UnexpectedBrokers(1.0)
    assert not misled.starts_again(OTHER, 2, 0.9)
    assert misled.starts_again(OTHER, 2, 1.0)
