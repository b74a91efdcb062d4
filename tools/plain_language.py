"""Count the markers of private English in docstrings, comments, messages and pages.

    tools/plain_language.py                the number of markers by room or page, and the limits
    tools/plain_language.py --lines ROOM   each marker of a room, and what to write instead
    tools/plain_language.py --added [BASE] only those of lines added since the commit BASE, or since
                                           the limits were last written; exit status 1 if any
    tools/plain_language.py --lower        lower the limits of rooms that have fewer markers now

A marker is a word or a form that engineers outside of this project misread or read twice. The file
plain_language.json has a limit for each room, which may only fall:
`tests/unit/test_house_language.py` fails if a room has more. A room without a limit may have none.
"""

from __future__ import annotations

import argparse
import bisect
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMITS = Path(__file__).with_suffix(".json")
COMMAND = ".venv/bin/python tools/plain_language.py"
FOLDERS = ("benchmarks", "docs", "examples", "src", "tests", "tools")
LEFT_OUT = (
    "src/odradek/protocol/messages/",  # generated code
    "tools/plain_language.py",  # this file has the words themselves, and examples
    "tests/unit/test_house_language.py",
)
SKIPPED = {"__pycache__", "build", "node_modules"}
SLACK, SHARE = 25, 10
"""How far, in markers or percent, a room may be below its limit before the limit must be lowered.

Without slack each change would alter the file, and merged branches would conflict in it."""


@dataclass(frozen=True)
class Marker:
    """A word or form to avoid, with what to write instead."""

    form: str
    instead: str
    pattern: re.Pattern[str]


def _marker(form: str, instead: str, pattern: str) -> Marker:
    """Compile a marker's pattern; a blank matches any white space, because prose is wrapped."""
    pattern = re.sub(r"(?<!\[) ", r"\\s+", pattern)
    return Marker(form, instead, re.compile(pattern, re.MULTILINE))


MARKERS = (
    _marker(
        "a sentence that starts with 'What', 'Who' or 'Whoever'",
        "name the subject: the batch, the caller, the broker",
        r"(?:^[ \t]*|[.:;!?] )"
        r"(?:What|Whoever|Who (?:waits|asks|calls|reads|writes|takes|gives|has))\b(?![^.]*\?)",
    ),
    _marker(
        "nobody, somebody, anybody, everybody",
        "no broker, a member, each caller",
        r"\b(?:no|some|any|every)body\b|\b(?:No|Some|Any|Every)body\b",
    ),
    _marker("whoever", "the caller that …", r"\b[Ww]hoever\b"),
    _marker("gives", "returns, yields, passes", r"\b[Gg]ives?\b(?! up)"),
    _marker("goes on", "continues, resumes", r"\b(?:go|goes|went|going) on\b"),
    _marker("is there, isn't there", "exists, doesn't exist",
            r"\b(?:is|are|was|were|isn't|aren't|wasn't) there\b"),
    _marker("so many, so long", "n records, this timeout",
            r"\b(?:for |after )?so (?:many|long)\b(?! (?:as|that))"),
    _marker("anew", "again, recreated", r"\banew\b"),
    _marker("behind", "after", r"\bbehind\b"),
    _marker("stands", "is, remains", r"\bstands?\b"),
    _marker("can be had", "is available", r"\b(?:be|is|are|was|were) had\b"),
    _marker("of ours, of one's own", "our, its own", r"\bof (?:ours|theirs|yours|one's own)\b"),
    _marker("tells of, is told of", "reports, is notified of", r"\b(?:tells?|told) of\b"),
    _marker("have X done", "do X", r"(?:^[ \t]*|[.:;] )Have (?:it|them|each|all|the|what)\b"),
    _marker("all the same", "anyway", r"\ball the same\b"),
    _marker("dial", "connect, connection attempt", r"\b[Dd]ial(?:s|led|ling)?\b"),
    _marker(
        "is made",
        "is created",
        r"\b(?:is|are|was|were|be) made\b"
        r"(?! (?:of|from|by|to|up|with|in|for|at|on|available|public|safe|sure))",
    ),
    _marker("in work, in hand, at hand", "in progress, buffered, available",
            r"\b(?:in work|in hand|at hand)\b"),
    _marker("rights", "permissions, ACLs", r"\brights\b"),
)  # fmt: skip
_LIKELY = re.compile(
    r"What|Who|body\b|hoever|\bgo(?:es|ing)?\s+on\b|\bwent\s+on\b|ives?\b(?!\s+up)|\s+there\b|anew|behind"
    r"|\bso\s+(?:many|long)|stands?\b|\bhad\b|\bof\s+(?:ours|th|yours|one)|\b(?:tells?|told)\s"
    r"|Have|the\s+same|\b[Dd]ial|made|\bhand\b|in\s+work|rights"
)
"""Quick check that each marker's text passes; most texts don't and are skipped."""
_TRIPLE = r'"""(?:[^"\\]|\\.|"(?!""))*"""' + "|" + r"'''(?:[^'\\]|\\.|'(?!''))*'''"
_SINGLE = r'"(?:[^"\\\n]|\\.)*"' + "|" + r"'(?:[^'\\\n]|\\.)*'"
_TOKEN = re.compile(f"(?P<triple>{_TRIPLE})|(?P<single>{_SINGLE})|#(?P<comment>[^\n]*)", re.DOTALL)
_GAPS = {"single": re.compile(r"\s*[rRbBfFuU]{0,2}"), "comment": re.compile(r"\n[ \t]*")}
"""Code that may separate two parts of one text: adjacent literals, comments on successive lines."""
_CODE = re.compile(r"^([ \t]*)```.*?^\1```", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(r"`[^`\n]*`")


@dataclass(frozen=True)
class Hit:
    """A marker that was found, with its file and line."""

    path: str
    line: int
    marker: Marker
    words: str

    def __str__(self) -> str:
        return (
            f"{self.path}:{self.line}: {self.words}\n    {self.marker.form} → {self.marker.instead}"
        )


def _blank(match: re.Match[str]) -> str:
    """Replace code by a placeholder with the same number of characters and lines."""
    return re.sub(r"[^\n`]", "_", match[0])


def texts_of_python(source: str) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """Yield docstrings, messages and comments, each with its parts' offsets in text and file."""
    pieces: list[tuple[str, int]] = []
    kind, end = "", 0
    for token in _TOKEN.finditer(source):
        now = token.lastgroup or ""
        gap = _GAPS.get(now)
        if pieces and not (now == kind and gap and gap.fullmatch(source, end, token.start())):
            yield from _joined(pieces, kind)
            pieces = []
        kind, end = now, token.end()
        quotes = {"triple": 3, "single": 1}.get(kind, 0)
        text = token[kind][quotes:-quotes] if quotes else token[kind] + "\n"
        pieces.append((text, token.start(kind) + quotes))
    yield from _joined(pieces, kind)


def _joined(
    pieces: list[tuple[str, int]], kind: str
) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    places, length = [], 0
    for text, at in pieces:
        places.append((length, at))
        length += len(text)
    whole = "".join(text for text, _ in pieces)
    if kind == "comment" or whole.count(" ") >= 3:
        yield whole, places


def hits(path: str, source: str) -> Iterator[Hit]:
    """Yield the markers in a file's docstrings, comments, messages or pages."""
    if path.endswith(".md"):
        texts: Iterator[tuple[str, list[tuple[int, int]]]]
        texts = iter([(_CODE.sub(_blank, source), [(0, 0)])])
    else:
        texts = texts_of_python(source)
    lines: list[int] = []
    for text, places in texts:
        if not _LIKELY.search(text):
            continue
        prose = _QUOTED.sub(_blank, text)
        for marker in MARKERS:
            for found in marker.pattern.finditer(prose):
                lines = lines or [-1, *(end.start() for end in re.finditer("\n", source))]
                start = found.start() + len(found[0]) - len(found[0].lstrip(" \t\n.:;!?"))
                at, place = places[bisect.bisect(places, (start, sys.maxsize)) - 1]
                line = bisect.bisect_left(lines, place + start - at)
                words = source[lines[line - 1] + 1 :].split("\n", 1)[0].strip()
                yield Hit(path, line, marker, words[:120])


def files() -> Iterator[Path]:
    """Yield the files in which markers are counted."""
    yield from ROOT.glob("*.md")
    for folder in FOLDERS:
        for place, folders, names in os.walk(ROOT / folder):
            folders[:] = [name for name in folders if name not in SKIPPED]
            for name in names:
                path = Path(place, name)
                if counted(path.relative_to(ROOT).as_posix()):
                    yield path


def counted(path: str) -> bool:
    """Return whether markers in this file are counted."""
    return path.endswith((".py", ".pyx", ".md")) and not path.startswith(LEFT_OUT)


def room_of(path: str) -> str:
    """Return the room (package or folder) or the page to which a file belongs."""
    first, *rest = path.split("/")
    if first == "src":
        return "/".join(path.split("/")[:3])
    return path if first == "docs" and rest[0].endswith(".md") else first


def by_room() -> dict[str, list[Hit]]:
    """Return all markers by room or page."""
    found: dict[str, list[Hit]] = defaultdict(list)
    for path in files():
        name = path.relative_to(ROOT).as_posix()
        found[room_of(name)] += hits(name, path.read_text())
    return {room: sorted(found[room], key=lambda hit: (hit.path, hit.line)) for room in found}


def limits() -> dict[str, int]:
    """Return the maximum number of markers by room."""
    found: dict[str, int] = json.loads(LIMITS.read_text())
    return found


def too_many(found: dict[str, list[Hit]], allowed: dict[str, int]) -> dict[str, int]:
    """Return by how many markers each room exceeds its limit."""
    above = {room: len(each) - allowed.get(room, 0) for room, each in found.items()}
    return {room: number for room, number in sorted(above.items()) if number > 0}


def too_loose(found: dict[str, list[Hit]], allowed: dict[str, int]) -> list[str]:
    """Return the rooms with so few markers that their limits must be lowered."""
    return [
        room
        for room, most in sorted(allowed.items())
        if most - len(found.get(room, ())) > max(SLACK, most * SHARE // 100)
    ]


def lowered(found: dict[str, list[Hit]], allowed: dict[str, int]) -> dict[str, int]:
    """Return the lowered limits: never higher than before, and none for rooms without markers."""
    new = {room: min(most, len(found.get(room, ()))) for room, most in allowed.items()}
    return {room: most for room, most in sorted(new.items()) if most}


def added(base: str) -> dict[str, set[int]]:
    """Return the numbers of the lines added since a commit, by file; all lines of new files."""
    found: dict[str, set[int]] = defaultdict(set)
    name = ""
    for line in _git("diff", "-U0", "--no-color", base, "--").splitlines():
        if line.startswith("+++ "):
            name = line[4:].partition("/")[2]
        elif match := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(match[1]), int(match[2] or 1)
            found[name] |= set(range(first, first + count))
    for name in _git("ls-files", "--others", "--exclude-standard").splitlines():
        found[name] = set(range(1, (ROOT / name).read_bytes().count(b"\n") + 2))
    return found


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def in_added(base: str) -> list[Hit]:
    """Return the markers of lines added since a commit."""
    return [
        hit
        for name, numbers in sorted(added(base).items())
        if counted(name) and (ROOT / name).is_file()
        for hit in hits(name, (ROOT / name).read_text())
        if hit.line in numbers
    ]


def last_written() -> str:
    """Return the last commit that changed the file of limits."""
    return _git("log", "-1", "--format=%H", "--", str(LIMITS)).strip()


def advice(above: dict[str, int]) -> str:
    """Return the lines by which rooms exceed their limits, with advice."""
    lines = [f"{room}: {number} more than its limit" for room, number in above.items()]
    try:
        new = [hit for hit in in_added(last_written()) if room_of(hit.path) in above]
    except (OSError, subprocess.CalledProcessError):  # no git, or a copy without its history
        new = []
    lines += [str(hit) for hit in new]
    lines += [f"all of a room: `{COMMAND} --lines {room}`" for room in above]
    return "\n".join(["write plainer English", *lines])


def main() -> int:
    """Print the counts or the selected markers, or write lower limits."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lines", metavar="ROOM", help="print each marker of this room or page")
    parser.add_argument(
        "--added", nargs="?", const="", metavar="BASE", help="print those of lines added since then"
    )
    parser.add_argument("--lower", action="store_true", help="write lower limits")
    options = parser.parse_args()
    if options.added is not None:
        new = in_added(options.added or last_written())
        print(*new, f"{len(new)} added markers", sep="\n")
        return 1 if new else 0
    found, allowed = by_room(), limits()
    if options.lines:
        print(*found.get(options.lines, ()), sep="\n")
    elif options.lower:
        LIMITS.write_text(json.dumps(lowered(found, allowed), indent=2) + "\n")
    else:
        for room in sorted({*found, *allowed}):
            print(f"{len(found.get(room, ())):6} of {allowed.get(room, 0):6}  {room}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
