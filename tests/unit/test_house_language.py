"""In each folder, the number of odd English words that the tool finds may only decrease."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tools import plain_language
from tools.plain_language import (
    MARKERS,
    Hit,
    Marker,
    by_room,
    hits,
    limits,
    lowered,
    too_loose,
    too_many,
)


@pytest.fixture(scope="module")
def found() -> dict[str, list[Hit]]:
    return by_room()


@pytest.mark.slow
def test_no_folder_has_more_markers_of_odd_english_than_its_limit(
    found: dict[str, list[Hit]],
) -> None:
    above = too_many(found, limits())
    assert above == {}, plain_language.advice(above)


def test_limits_are_lowered_after_a_rewrite(found: dict[str, list[Hit]]) -> None:
    assert too_loose(found, limits()) == [], f"run `{plain_language.COMMAND} --lower`"


def test_the_stored_limits_are_formatted_as_the_tool_writes_them() -> None:
    text = plain_language.LIMITS.read_text()
    assert text == json.dumps(dict(sorted(limits().items())), indent=2) + "\n"


EXAMPLES = {
    "a sentence that starts with 'What', 'Who' or 'Whoever'": "It has a name. What it names is x.",
    "nobody, somebody, anybody, everybody": "Somebody else took us in.",
    "whoever": "It wakes whoever has waited.",
    "gives": "It gives the offset back.",
    "goes on": "The member then goes\non with the next.",
    "is there, isn't there": "The topic isn't there any more.",
    "so many, so long": "It waits for so long again.",
    "anew": "The topic was built anew then.",
    "behind": "The second is behind the first.",
    "stands": "The group stands at offset 30.",
    "can be had": "A broker can be had now.",
    "of ours, of one's own": "An offset of ours is kept.",
    "tells of, is told of": "The event tells of a loss.",
    "have X done": "It has one purpose: Have it closed at once.",
    "all the same": "The batch is sent all the same.",
    "dial": "At most six dials in a second.",
    "is made": "The topic is made first.",
    "in work, in hand, at hand": "Three records are in work now.",
    "rights": "The user has no rights here.",
}


@pytest.mark.parametrize("marker", MARKERS, ids=lambda marker: marker.form)
def test_markers_of_odd_english_are_only_found_in_prose(marker: Marker) -> None:
    example = EXAMPLES[marker.form]
    comment = "x = 1\n\n# " + example.replace("\n", "\n# ")
    for path, text in {
        "a.md": f"# Page\n\n{example}\n",
        "a.py": f'"""Return it.\n\n{example}\n"""\n',
        "b.py": f'def f():\n    raise ValueError(\n        f"{{1}} is {example[:20]}"\n'
        f'        "{example[20:]}"\n    )\n'
        if "\n" not in example
        else comment,
        "c.py": comment,
    }.items():
        first, *others = hits(path, text)
        assert first.marker is marker, text
        assert others == []
        assert first.line >= 3 or path == "b.py"
        assert marker.instead in str(first)
    for path, text in {
        "a.md": f"Write `{example}` so.\n\n```text\n{example}\n```\n".replace("\n", " ", 1),
        "a.py": f"word = {example.split()[0]!r}\n",
    }.items():
        assert list(hits(path, text)) == []


def test_markers_are_reported_with_their_line() -> None:
    source = (
        '"""Return it.\n\n    It gives the sum.\n    """\n'
        "x = 'gives'  # it gives the sum\n"
        "# It doesn't\n# give anything\n"
        "raise E(\n    'one two three four '\n    f'gives {x}'\n)\n"
    )
    assert [hit.line for hit in hits("a.py", source)] == [3, 5, 7, 10]
    assert [hit.line for hit in hits("a.md", "```\ngives\n```\na\nIt gives it, it gives.\n")] == [
        5,
        5,
    ]


def made_of(**numbers: int) -> dict[str, list[Hit]]:
    hit = Hit("a.py", 1, MARKERS[0], "")
    return {room: [hit] * number for room, number in numbers.items()}


def test_limits_of_markers_only_fall() -> None:
    allowed = {"large": 1000, "small": 30, "gone": 3}
    assert too_many(made_of(large=1001, small=30, new=2), allowed) == {"large": 1, "new": 2}
    assert too_many(made_of(large=1000), allowed) == {}
    assert lowered(made_of(large=1001, small=20, new=1), allowed) == {"large": 1000, "small": 20}
    assert too_loose(made_of(large=900, small=5), allowed) == []
    assert too_loose(made_of(large=899, small=4), allowed) == ["large", "small"]


def test_markers_in_added_lines_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def git(*arguments: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    (tmp_path / "a.py").write_text("# It gives one.\nx = 1\n")
    git("add", ".")
    git("commit", "-m", "first")
    (tmp_path / "a.py").write_text("# It gives one.\nx = 1\n# It gives two.\n")
    (tmp_path / "b.md").write_text("It gives three.\n")
    monkeypatch.setattr(plain_language, "ROOT", tmp_path)
    monkeypatch.setattr(plain_language, "LIMITS", tmp_path / "a.py")
    monkeypatch.setattr("sys.argv", ["plain_language.py", "--added"])
    assert plain_language.main() == 1
    said = capsys.readouterr().out
    assert "a.py:3: # It gives two." in said
    assert "b.md:1: It gives three." in said
    assert "2 added markers" in said
    advice = plain_language.advice({"b.md": 1})
    assert "b.md: 1 more than its limit" in advice
    assert "b.md:1: It gives three." in advice
    assert "returns" in advice
    assert "a.py" not in advice  # a file in a folder that is within its limit
    git("add", ".")
    git("commit", "-m", "second")
    assert plain_language.main() == 0


def test_the_command_lowers_limits_and_never_raises_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("It gives one. It gives two.\n")
    (tmp_path / "docs" / "b.md").write_text("It gives one.\n")
    table = tmp_path / "limits.json"
    table.write_text(json.dumps({"docs/a.md": 1, "docs/b.md": 5, "docs/c.md": 2}))
    monkeypatch.setattr(plain_language, "ROOT", tmp_path)
    monkeypatch.setattr(plain_language, "LIMITS", table)
    monkeypatch.setattr("sys.argv", ["plain_language.py", "--lower"])
    assert plain_language.main() == 0
    assert json.loads(table.read_text()) == {"docs/a.md": 1, "docs/b.md": 1}
