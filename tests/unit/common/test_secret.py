"""Test that only `reveal()` shows a secret."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Iterator
from types import FunctionType

import pytest

from odradek.common.secret import Secret, private

PLANTED = "planted-Pa55"


def test_repr_str_and_format_do_not_show_a_secret() -> None:
    """Test repr, str, format and containers of a secret."""
    secret = Secret(PLANTED)
    shown = [repr(secret), str(secret), f"{secret}", f"{secret!r:>20}", f"{secret:>20}"]
    shown += ["%s %r" % (secret, secret), repr({"a": [secret]})]  # noqa: UP031  the old form too
    for text in shown:
        assert PLANTED not in text
        assert "[hidden]" in text
    assert secret.reveal() == PLANTED
    with pytest.raises(TypeError):
        json.dumps({"password": secret})


def test_a_secret_is_an_immutable_value() -> None:
    """Secrets are equal by text, hashable, falsy when empty, immutable, and not equal to a str."""
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert Secret("\udc80") == Secret("\udc80")
    assert len({Secret("a"), Secret("a"), Secret("b")}) == 2
    assert not Secret("")
    secret = Secret("a")
    with pytest.raises(AttributeError):
        secret._text = "b"
    with pytest.raises(AttributeError):
        del secret._text


def test_copies_of_a_secret_are_secrets() -> None:
    """Spark pickles configurations; copy and deepcopy keep the class."""
    secret = Secret(PLANTED)
    for other in (
        pickle.loads(pickle.dumps(secret)),  # noqa: S301  our own
        copy.copy(secret),
        copy.deepcopy([secret])[0],
    ):
        assert type(other) is Secret
        assert other == secret
        assert PLANTED not in repr(other)


def test_removing_secrets_from_tracebacks_does_not_close_generators() -> None:
    """Removing secrets from tracebacks must not close generators of the error being handled."""

    def flow() -> Iterator[BaseException]:
        try:
            raise LookupError("a flow's error, after which it continues")
        except LookupError as error:
            yield error
        yield EOFError("later")

    @private
    def create(password: str) -> None:
        raise ValueError("wrong settings")

    running = FunctionType(flow.__code__, {"__name__": "odradek.flows"})()
    try:
        raise next(running)
    except LookupError:
        with pytest.raises(ValueError, match="wrong"):
            create(PLANTED)
    assert isinstance(next(running), EOFError)
