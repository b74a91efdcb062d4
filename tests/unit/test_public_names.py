"""Every public class and error is importable from `odradek`, and importing it stays light."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import odradek
from odradek.common import errors, kafka_errors


def test_every_listed_name_is_there() -> None:
    for name in odradek.__all__:
        assert getattr(odradek, name).__name__ == name


@pytest.mark.parametrize("module", [errors, kafka_errors])
def test_every_error_is_there(module: object) -> None:
    found = [
        value
        for _, value in inspect.getmembers(module, inspect.isclass)
        if issubclass(value, errors.KafkaError) and value.__name__.endswith("Error")
    ]
    assert len(found) > 20
    for error in found:
        assert getattr(odradek, error.__name__) is error
        assert error.__name__ in dir(odradek)


def test_what_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Consumers"):
        _ = odradek.Consumers
    with pytest.raises(AttributeError, match="NoSuchThingError"):
        _ = odradek.NoSuchThingError


def test_the_import_loads_nothing_heavy() -> None:
    code = (
        "import sys, odradek\n"
        "odradek.Producer, odradek.Consumer, odradek.Admin\n"
        "print(*[m for m in ('pyarrow', 'pyspark', 'numpy', 'pandas', 'asyncio', 'typer', 'rich')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []
