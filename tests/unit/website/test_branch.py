"""The branch that keeps earlier versions of the site, with a remote of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tools.website import branch, versions


def git(folder: Path, *words: str) -> str:
    command = ["git", *branch.NAMES, "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    first = checkout(tmp_path / "first", None)
    git(tmp_path, "clone", "--quiet", "--bare", str(first), str(tmp_path / "remote"))
    return tmp_path / "remote"


def checkout(folder: Path, remote: Path | None) -> Path:
    """A fresh clone, as a workflow has it; the first one is what the remote is made of."""
    if remote is not None:
        git(folder.parent, "clone", "--quiet", "--depth=1", f"file://{remote}", str(folder))
        return folder
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    (folder / ".gitignore").write_text("build/\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "all")
    return folder


def build(root: Path, version: str) -> None:
    """What `make site` leaves."""
    page = root / "build/site" / version / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text(version)
    versions.write(root / "build/site")


def test_each_version_stays_beside_the_next(tmp_path: Path, remote: Path) -> None:
    for number, version in enumerate(("0.1.0", "0.2.0")):
        root = checkout(tmp_path / f"run{number}", remote)
        branch.main(["take"], root)
        build(root, version)
        assert branch.main(["keep"], root) == 0
        assert git(root, "status", "--porcelain") == ""
    files = git(remote, "ls-tree", "-r", "--name-only", "site").split()
    assert files == ["0.1.0/index.html", "0.2.0/index.html", "index.html", "versions.js"]
    assert git(remote, "show", "site:versions.js").startswith(
        'window.odradekVersions = ["0.2.0", "0.1.0"];'
    )
    assert git(remote, "rev-list", "--count", "site").strip() == "2"


def test_without_a_site_nothing_is_kept(
    tmp_path: Path, remote: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = checkout(tmp_path / "run", remote)
    branch.main(["take"], root)
    assert branch.main(["keep"], root) == 1
    assert "make site" in capsys.readouterr().err
    assert git(remote, "branch", "--list", "site") == ""
