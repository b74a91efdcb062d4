"""Public errors, records and results can be pickled, copied and printed.

The tests create instances from each class's annotations, so that new classes are tested without
further work; `GIVEN` has the values that annotations don't determine.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any
from uuid import UUID

import pyarrow
import pytest

import odradek.errors
from odradek.common.errors import Attempt, BrokerError, KafkaError
from odradek.common.errors.kafka import error_for
from odradek.common.public_names import MODULES
from odradek.common.types import Address, TopicPartition
from odradek.serialization.context import MessageField

PLAIN: dict[Any, Any] = {
    str: "text",
    int: 7,
    float: 1.5,
    bool: True,
    bytes: b"bytes",
    object: "any",
    Any: "any",
    TopicPartition: TopicPartition("t", 1),
    Address: Address("b", 9092),
    UUID: UUID(int=7),
    Attempt: Attempt(Address("b", 9092), "connect", "refused", 1.0),
    MessageField: MessageField("value"),
    pyarrow.Array: "array",
    KafkaError: KafkaError("why"),
    BrokerError: error_for(6, "why"),
    type(None): None,
}


def value_of(kind: Any) -> Any:
    """Create a value that fits an annotation."""
    if kind in PLAIN:
        return PLAIN[kind]
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return value_of(inside[0])
    if origin is typing.Literal:
        return inside[0]
    if origin is tuple:
        return tuple(value_of(one) for one in inside if one is not ...)
    if origin in (dict, Mapping):
        return {value_of(inside[0]): value_of(inside[1])}
    if origin in (frozenset, set):
        return origin([value_of(inside[0])])
    if origin in (list, Sequence, typing.Iterable):
        return [value_of(inside[0])]
    if isinstance(kind, typing.TypeVar):
        return "any"
    return made(kind)


def made(cls: type) -> Any:
    """Create an instance of a class, with values for all arguments."""
    start = cls.__new__ if issubclass(cls, tuple) else cls.__init__
    about = cls if dataclasses.is_dataclass(cls) else start
    names = {one.__name__: one for one in PLAIN if isinstance(one, type)}
    names |= {"Mapping": Mapping, "Sequence": Sequence, "pa": pyarrow}
    hints = typing.get_type_hints(about, vars(sys.modules[cls.__module__]) | names)
    positional, named = [], {}
    for one in list(inspect.signature(start).parameters.values())[1:]:
        if one.kind is one.VAR_POSITIONAL:
            positional.append("text")
        elif one.kind is one.KEYWORD_ONLY:
            named[one.name] = value_of(hints[one.name])
        elif one.kind is not one.VAR_KEYWORD:
            positional.append(value_of(hints[one.name]))
    return cls(*positional, **named)


def public(fits: Callable[[type], bool]) -> dict[str, type]:
    found = {
        name: getattr(import_module(home), name)
        for place, homes in MODULES.items()
        if place != "odradek.spark"
        for home, names in homes.items()
        for name in names.split()
    }
    return {n: c for n, c in found.items() if isinstance(c, type) and fits(c)}


ERRORS = public(lambda cls: issubclass(cls, BaseException))
RESULTS = public(
    lambda cls: (
        dataclasses.is_dataclass(cls) or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
    )
)
COPIES: list[Callable[[Any], Any]] = [
    copy.copy,
    copy.deepcopy,
    *(lambda it, to=to: pickle.loads(pickle.dumps(it, to)) for to in range(2, 6)),  # noqa: S301
]


def state(error: BaseException) -> dict[str, str]:
    """Return an error's state as text, because errors compare by identity."""
    return {name: str(value) for name, value in vars(error).items()}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_is_equal_after_pickling_and_copying(name: str) -> None:
    error = made(ERRORS[name])
    if isinstance(error, KafkaError):
        error = error.beside({1: "result"}, {2: KafkaError("why")})
    error.add_note("note")
    for way in COPIES:
        again = way(way(error))
        assert type(again) is type(error)
        assert (str(again), repr(again)) == (str(error), repr(error))
        assert [*map(str, again.args)] == [*map(str, error.args)]
        assert state(again) == state(error)
        assert f"{again}" == str(error)


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_is_equal_after_pickling_and_copying(name: str) -> None:
    result = made(RESULTS[name])
    assert str(result)
    assert f"{result}" == str(result)
    for way in COPIES:
        again = way(result)
        assert type(again) is type(result)
        same = again == result
        assert same if isinstance(same, bool) and "Error(" not in repr(result) else True
        assert repr(way(again)) == repr(again)


def test_the_message_of_an_unknown_error_code_is_not_repeated() -> None:
    error = error_for(9999, "said so")
    several = error.beside({}, {1: error, 2: error})
    assert str(several) == str(error) == "unknown broker error code 9999. said so"


def test_most_public_classes_are_tested() -> None:
    assert {*odradek.errors.__all__} <= {*ERRORS}
    assert len(RESULTS) > 50
