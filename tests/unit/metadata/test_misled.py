"""R-RB-3, R-RB-8: what a broker says that isn't meant leads to the bootstrap addresses, once."""

from __future__ import annotations

from odradek.common.types import Address
from odradek.metadata.misled import Misled

ONE, OTHER = Address("one", 9092), Address("other", 9092)


def test_an_address_that_goes_on_saying_it_is_a_reason_once() -> None:
    misled = Misled(1.0)
    assert misled.starts_again(ONE, 1, 10.0)
    assert not misled.starts_again(ONE, 1, 20.0)
    assert misled.starts_again(ONE, 2, 30.0)  # the metadata names another broker there now
    assert misled.starts_again(ONE, 1, 40.0)


def test_it_is_one_again_once_the_right_broker_was_there() -> None:
    misled = Misled(1.0)
    assert misled.starts_again(ONE, 1, 10.0)
    misled.led_right(ONE)
    misled.led_right(OTHER)
    assert misled.starts_again(ONE, 1, 20.0)


def test_another_address_has_to_wait_for_its_turn() -> None:
    misled = Misled(1.0)
    assert misled.starts_again(ONE, 1, 10.0)
    assert not misled.starts_again(OTHER, 2, 10.9)
    assert misled.starts_again(OTHER, 2, 11.0)
