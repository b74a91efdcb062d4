"""Test combinations of flags that `odradek cluster start` rejects before it starts anything."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from odradek.cli import build


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--acls", "--acls needs --security SASL_SSL or SASL_PLAINTEXT"),
        ("--security SSL --acls", "--acls needs --security SASL_SSL or SASL_PLAINTEXT"),
        ("--mutual-tls", "--mutual-tls needs --security SSL or SASL_SSL"),
        ("--user alice", "--mechanism and --user need --security"),
        ("--security SSL --mechanism PLAIN", "--mechanism and --user need --security"),
        ("--security SASL_SSL --user alice=pl4nted", "--user must be name or name:password"),
    ],
)
def test_incompatible_flags_are_rejected(words: str, why: str) -> None:
    done = CliRunner().invoke(build("cluster"), ["cluster", "start", *words.split()])
    shown = " ".join(done.stderr.replace("│", " ").split())
    assert (done.exit_code, why in shown, "pl4nted" in shown) == (2, True, False)
