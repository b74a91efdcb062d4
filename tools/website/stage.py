"""Copy the sources of the site: the repository's own pages, and files that only the site has.

In: the repository. Out: a folder with the same paths in it, so that links between pages remain
valid. A link to a folder leads to its README; a link whose text is its page's file name gets the
page's title; a link to a source file leads into `repository`, if an address was given, and is plain
text otherwise. Must not: change a page in other ways, or publish other files in the folders: notes,
settings with secrets, output of examples.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SITE = Path("docs/site")
PAGES = (
    "*.md",
    "docs/*.md",
    "benchmarks/*.md",
    "benchmarks/scorecard/*.md",
    "examples/*.md",
    "examples/*/*.md",
)
DIAGRAM = re.compile(
    r"^```mermaid\n(stateDiagram-v2|flowchart LR)\n(.*?)^```\s*?$", re.MULTILINE | re.DOTALL
)
ARROW = re.compile(r'--(?: "(.*?)" --)?>')
NODE = re.compile(r'(\w+)(?:\["(.*?)"\])?')
DATA = ("docs/*.json", "docs/*.svg", "examples/*/*.*")
"""Files that pages link to or show, and that readers may download."""
FENCE = re.compile(r"(^ *```.*?^ *```\s*?$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


class StagingError(Exception):
    """A page of the repository can't be a page of the site."""


def pages() -> list[Path]:
    """Return the repository's pages, as paths below its root."""
    return sorted(files(*PAGES))


def files(*patterns: str) -> list[Path]:
    """Return the repository's files that match these patterns, as paths below its root.

    Without git all matching files count, except for hidden ones.
    """
    found = (p.relative_to(ROOT) for pattern in patterns for p in ROOT.glob(pattern) if p.is_file())
    plain = [path for path in found if not any(part.startswith(".") for part in path.parts)]
    kept = of_git()
    return plain if kept is None else [path for path in plain if path.as_posix() in kept]


def of_git() -> set[str] | None:
    """Return the paths that git tracks; None without git."""
    if not (ROOT / ".git").exists():
        return None
    try:
        done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    except OSError:
        return None
    if done.returncode != 0:
        raise StagingError(f"git doesn't say what it keeps: {done.stderr.decode().strip()}")
    return set(done.stdout.decode().split("\0"))


def stage(target: Path, repository: str = "") -> None:
    """Copy pages, data and the site's own files into an empty folder."""
    known = set(pages())
    for path in known:
        text = (ROOT / path).read_text(encoding="utf-8")
        text = DIAGRAM.sub(table, text)
        put(target / path, "".join(relinked(text, path, known, repository)))
    for path in files(*DATA):
        if path not in known:
            put(target / path, (ROOT / path).read_bytes())
    for path in files(f"{SITE}/**/*"):
        put(target / path.relative_to(SITE), (ROOT / path).read_bytes())
    # A page that is opened as a file may load scripts, but no JSON.
    traces = (ROOT / "docs/what-happens.json").read_text(encoding="utf-8")
    put(target / "_static/traces.js", f"window.odradekTraces = {traces};\n")


def title(path: Path) -> str:
    """Return a page's title, which replaces file names in links; the README keeps its name."""
    if path == Path("README.md"):
        return path.name
    found = re.search(r"^# (.*)$", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else path.name


def table(diagram: re.Match[str]) -> str:
    """Convert a diagram to a table: a script that draws it would be three megabytes."""
    convert = transitions if diagram[1] == "stateDiagram-v2" else arrows
    return convert(diagram[2])


def arrows(diagram: str) -> str:
    """Convert a flowchart with lines `a["from"] -- "what" --> b["to"]`; labels are optional."""
    lines, names = ["| from | what | to |", "|---|---|---|"], dict[str, str]()
    for line in diagram.splitlines():
        before, what, after = ((part or "").strip() for part in ARROW.split(line))
        for node in NODE.finditer(f"{before} {after}"):
            names.setdefault(node[1], node[2] or node[1])
        first, last = (NODE.match(part)[1] for part in (before, after))  # type: ignore[index]
        lines.append(f"| {names[first]} | {what} | {names[last]} |")
    return "\n".join(lines) + "\n"


def transitions(diagram: str) -> str:
    """Convert a state diagram."""
    lines = ["| from | when | to |", "|---|---|---|"]
    for line in diagram.splitlines():
        states, _, event = (part.strip() for part in line.partition(":"))
        before, _, after = (part.strip() for part in states.partition("-->"))
        lines.append(f"| {state(before)} | {event or 'it begins'} | {state(after)} |")
    return "\n".join(lines) + "\n"


def state(name: str) -> str:
    """Return the table cell of a state."""
    return "" if name == "[*]" else f"`{name}`"


def put(file: Path, content: str | bytes) -> None:
    """Write a file, and create the folders above it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)


def relinked(text: str, page: Path, known: set[Path], repository: str) -> Iterator[str]:
    """Yield a page's text with links for the site; code blocks are unchanged."""
    for index, part in enumerate(FENCE.split(text)):
        if index % 2:
            yield part
        else:
            yield LINK.sub(lambda found: one_link(found, page, known, repository), part)


def one_link(found: re.Match[str], page: Path, known: set[Path], repository: str) -> str:
    """Return one link in the form that the site needs."""
    words, link = found[1], found[2]
    place, hash_mark, anchor = link.partition("#")
    if not place or re.match(r"[a-z]+:", place):
        return found[0]
    path = (ROOT / page.parent / place).resolve().relative_to(ROOT)
    if path in known and words in (path.name, path.as_posix()):
        return f"[{title(path)}]({link})"
    if path in known or any(path.match(pattern) for pattern in DATA):
        return found[0]
    if path / "README.md" in known:
        return f"[{words}]({place.rstrip('/')}/README.md{hash_mark}{anchor})"
    if not (ROOT / path).exists():
        raise StagingError(f"{page}: the link to {link} leads nowhere")
    return f"[{words}]({repository.rstrip('/')}/{path.as_posix()})" if repository else words
