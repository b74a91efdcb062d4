"""Keep earlier versions of the site in the branch `site`, for the workflow that deploys it.

In: `take` or `keep`, the checkout, its remote `origin`. Out: `take` copies the branch's content
into `build/site`, where `make site` adds a version and writes the list of all; `keep` commits that
folder to the branch and pushes it. Only a version's tag is accepted: another commit's pages would
replace that version's. Must not: touch the checkout's own files, index or branch.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BRANCH = "site"
NAMES = ("-c", "user.name=odradek", "-c", "user.email=site@example.com")


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Run `take` or `keep`; return 1 if that isn't allowed or has no effect, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("what", choices=["take", "keep"])
    folder = root / "build" / "site"
    if parser.parse_args(arguments).what == "take":
        tag = f"v{tomllib.loads((root / 'pyproject.toml').read_text())['project']['version']}"
        if tag not in git(root, "tag", "--points-at", "HEAD").decode().split():
            print(f"this commit isn't tagged {tag}: run the workflow at a tag", file=sys.stderr)
            return 1
        take(root, folder)
        return 0
    if not (folder / "versions.js").is_file():
        print("there is no site yet: make site", file=sys.stderr)
        return 1
    keep(root, folder)
    return 0


def take(root: Path, folder: Path) -> None:
    """Copy the branch's content into the folder, which remains empty if there is no branch yet."""
    folder.mkdir(parents=True, exist_ok=True)
    if newest(root):
        packed = git(root, "archive", "--format=tar", "FETCH_HEAD")
        with tarfile.open(fileobj=BytesIO(packed)) as files:
            files.extractall(folder, filter="data")


def keep(root: Path, folder: Path) -> None:
    """Commit the folder's content to the branch and push it."""
    parent = newest(root)
    with tempfile.TemporaryDirectory() as scratch:
        place = {"GIT_INDEX_FILE": f"{scratch}/index", "GIT_WORK_TREE": str(folder)}
        git(root, "add", "--all", "--force", ".", place=place)
        tree = git(root, "write-tree", place=place).decode().strip()
    above = ("-p", parent) if parent else ()
    version = git(root, "describe", "--always").decode().strip()
    words = ("commit-tree", tree, *above, "-m", f"The site with {version}")
    commit = git(root, *NAMES, *words).decode().strip()
    git(root, "push", "--quiet", "origin", f"{commit}:refs/heads/{BRANCH}")


def newest(root: Path) -> str:
    """Fetch the branch and return its commit; empty if the remote doesn't have the branch."""
    if not git(root, "ls-remote", "origin", f"refs/heads/{BRANCH}"):
        return ""
    git(root, "fetch", "--quiet", "--depth=1", "origin", f"refs/heads/{BRANCH}")
    return git(root, "rev-parse", "FETCH_HEAD").decode().strip()


def git(root: Path, *words: str, place: dict[str, str] | None = None) -> bytes:
    """Run git; its errors go to stderr."""
    where = Path((place or {}).get("GIT_WORK_TREE", root))
    environment = {**os.environ, **(place or {}), "GIT_DIR": git_folder(root)}
    command = ["git", *words]
    return subprocess.run(
        command, cwd=where, env=environment, check=True, stdout=subprocess.PIPE
    ).stdout


def git_folder(root: Path) -> str:
    """Return git's folder of the checkout; in a worktree `.git` is a file."""
    command = ["git", "-C", str(root), "rev-parse", "--absolute-git-dir"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
