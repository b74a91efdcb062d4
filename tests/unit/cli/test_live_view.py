"""Test the live view of long commands: redrawn on a terminal, otherwise printed line by line."""

from __future__ import annotations

import pytest
from rich.text import Text

from odradek.cli.demo.display import DemoDisplay
from odradek.cli.frame.live_view import LiveView


class Picture(LiveView):
    def __init__(self) -> None:
        super().__init__(lines=2, to_stderr=True)

    def tell(self, *lines: str) -> None:
        for line in lines:
            self._add(Text(line))

    def _draw(self) -> Text:
        return Text("picture of ") + Text(" and ").join(list(self._lines))


def test_a_terminal_gets_the_view_with_the_newest_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Picture() as view:
        view.tell("one", "two", "three")
        assert "three" not in capsys.readouterr().err.split("picture")[0]
    assert capsys.readouterr().err.rstrip("\x1b[?25h\r\n").endswith("picture of two and three")
    view.tell("four")
    assert capsys.readouterr() == ("", "four\n")


def test_a_jupyter_cell_gets_plain_lines_instead_of_the_live_view(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("JPY_PARENT_PID", "4711")
    with Picture() as view:
        view.tell("one", "two", "three")
    assert capsys.readouterr() == ("", "one\ntwo\nthree\n")


def test_without_a_terminal_lines_are_printed_one_by_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Picture() as view:
        view.tell("one", "two", "three")
    assert capsys.readouterr() == ("", "one\ntwo\nthree\n")


def test_the_demo_draws_bars_on_a_terminal_and_prints_progress_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown() -> str:
        with DemoDisplay({"sent": "records sent"}, to_stderr=False) as display:
            display.begin(10)
            for at, rows in ((1.0, 3), (2.0, 4), (7.0, 7)):
                display.progress(at, {"sent": rows})
            display.tell(8.0, "the cluster is back")
        return capsys.readouterr().out

    plain = shown().splitlines()
    assert [line.split()[3] for line in plain[:2]] == ["3", "7"]
    assert plain[2:] == ["   8.00 s  the cluster is back"]
    monkeypatch.setenv("FORCE_COLOR", "1")
    drawn = shown()
    assert "what happened" in drawn
    assert "records sent" in drawn
