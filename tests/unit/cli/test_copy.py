"""Test `odradek copy` if it is interrupted before the first record."""

from __future__ import annotations

import json
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from odradek.cli import build
from odradek.cli import copy as package
from odradek.cli.copy.copying import CopyBooks


@pytest.mark.parametrize("amid", ["_prepared", "_begin"])
def test_ctrl_c_before_the_first_record_prints_the_json_document(
    monkeypatch: pytest.MonkeyPatch, amid: str
) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    work = SimpleNamespace(
        plan=SimpleNamespace(name="odradek-copy"),
        writer=SimpleNamespace(alone=nullcontext),
        books=CopyBooks({0: 5}),
        missed=2,
    )
    monkeypatch.setattr(package, "_prepared", lambda *_, **__: work)
    monkeypatch.setattr(package, amid, interrupted)
    words = ["copy", "a", "b", "--bootstrap-server", "localhost:1", "--json"]
    done = CliRunner().invoke(build("copy"), words)
    assert done.exit_code == 130
    told = json.loads(done.stdout)
    known = amid == "_begin"
    assert (told["group"], told["missed"]) == (("odradek-copy", 2) if known else (None, 0))
    assert told["records"] == 0
