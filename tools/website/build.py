"""Build the static site from the repository into `build/site/VERSION`: `make site`.

In: the repository's pages and docs/site. Out: HTML that needs no server and no network. A warning
of Sphinx, a dead link and a name without a page are errors. Several versions may be in one folder
(`--into`); its `versions.js` lists them all for each page.

Sphinx with MyST is used because it reads Markdown as the repository shows it (CommonMark); MkDocs'
Python-Markdown doesn't. autodoc reads docstrings as reStructuredText, so docs/site/conf.py converts
their code in single backquotes and indented blocks.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools.website import api_pages, links, stage, versions
from tools.website.command_pages import command_pages, overview

import odradek

SOURCE = stage.ROOT / "build" / "site-source"
INTO = stage.ROOT / "build" / "site"
OVERVIEW = "% the table of commands comes here"


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the site; return an exit status that isn't 0 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=INTO, help="the folder of all versions")
    parser.add_argument("--version", default=odradek.__version__, help="the version in the path")
    parser.add_argument("--repository", default="", help="where links to source files lead")
    given = parser.parse_args(arguments)
    start = time.monotonic()
    if not versions.is_name(given.version):  # because the folder with this name is emptied
        parser.error(f"--version {given.version!r} is no name of a folder")
    into = given.into.resolve()  # absolute, because Sphinx runs in another folder
    target = into / given.version
    if target.exists() and not (target / ".buildinfo").is_file():
        parser.error(
            f"{target} isn't what Sphinx built, and would be emptied: take it away yourself"
        )
    try:
        write_source(SOURCE, given.repository)
    except stage.StagingError as error:
        print(error, file=sys.stderr)
        return 1
    shutil.rmtree(target, ignore_errors=True)
    if (status := sphinx(SOURCE, target, given.version)) != 0:
        return status
    versions.write(into)
    dead = links.dead_links(target)
    for line in dead:
        print(line, file=sys.stderr)
    pages = len(list(target.rglob("*.html")))
    took = time.monotonic() - start
    print(f"{target}: {pages} pages in {took:.0f} s, {len(dead)} links that lead nowhere")
    return 1 if dead or pages == 0 else 0


def write_source(source: Path, repository: str = "") -> None:
    """Write all files that Sphinx reads into an empty folder."""
    shutil.rmtree(source, ignore_errors=True)
    stage.stage(source, repository)
    if missing := api_pages.left_out():
        raise stage.StagingError(f"no page of the reference has {', '.join(sorted(missing))}")
    for folder, pages in (("api", api_pages.api_pages()), ("cli", command_pages())):
        for name, text in pages.items():
            stage.put(source / folder / f"{name}.md", text)
    commands = source / "commands.md"
    stage.put(commands, commands.read_text().replace(OVERVIEW, overview()))


def sphinx(source: Path, target: Path, version: str, builder: str = "html") -> int:
    """Run Sphinx, whose cache is next to the source and not in the site.

    The builder `dummy` reads and resolves all pages and writes nothing, in half of the time.
    """
    command = [
        sys.executable, "-m", "sphinx", "--quiet", "-W", "--keep-going", "--builder", builder,
        "--doctree-dir", str(source.with_name(f"{source.name}-doctrees")), str(source), str(target),
    ]  # fmt: skip
    environment = {**os.environ, "ODRADEK_SITE_VERSION": version}
    return subprocess.run(command, check=False, env=environment, cwd=source).returncode


if __name__ == "__main__":
    sys.exit(main())
