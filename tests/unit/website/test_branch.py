"""The git branch that keeps earlier versions of the site, tested with a local remote."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tools.website import branch, versions

VERSIONS = ("0.1.0", "0.2.0")


def git(folder: Path, *words: str) -> str:
    command = ["git", *branch.NAMES, "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    first = tmp_path / "first"
    first.mkdir()
    git(first, "init", "--quiet", "--initial-branch=main")
    (first / ".gitignore").write_text("build/\n")
    for version in VERSIONS:
        (first / "pyproject.toml").write_text(f'[project]\nversion = "{version}"\n')
        git(first, "add", ".")
        git(first, "commit", "--quiet", "-m", version)
        git(first, "tag", f"v{version}")
    git(first, "commit", "--quiet", "--allow-empty", "-m", "after the release")
    git(tmp_path, "clone", "--quiet", "--bare", str(first), str(tmp_path / "remote"))
    return tmp_path / "remote"


def checkout(folder: Path, remote: Path, at: str) -> Path:
    """Clone a tag or branch of the repository, as a CI workflow does."""
    words = ("--quiet", "--depth=1", "--branch", at)
    git(folder.parent, "clone", *words, f"file://{remote}", str(folder))
    return folder


def build(root: Path, version: str) -> None:
    """Write the pages of one version and the list of versions, as `make site` does."""
    page = root / "build/site" / version / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text(version)
    versions.write(root / "build/site")


def test_a_new_version_is_stored_beside_the_earlier_ones(tmp_path: Path, remote: Path) -> None:
    for version in VERSIONS:
        root = checkout(tmp_path / version, remote, f"v{version}")
        assert branch.main(["take"], root) == 0
        build(root, version)
        assert branch.main(["keep"], root) == 0
        assert git(root, "status", "--porcelain") == ""
    files = git(remote, "ls-tree", "-r", "--name-only", "site").split()
    assert files == ["0.1.0/index.html", "0.2.0/index.html", "index.html", "versions.js"]
    assert git(remote, "show", "site:versions.js").startswith(
        'window.odradekVersions = ["0.2.0", "0.1.0"];'
    )
    assert git(remote, "rev-list", "--count", "site").strip() == "2"


def test_without_a_built_site_nothing_is_stored(
    tmp_path: Path, remote: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = checkout(tmp_path / "run", remote, "v0.2.0")
    assert branch.main(["take"], root) == 0
    assert branch.main(["keep"], root) == 1
    assert "make site" in capsys.readouterr().err
    assert git(remote, "branch", "--list", "site") == ""


def test_a_commit_after_the_release_does_not_replace_its_pages(
    tmp_path: Path, remote: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The workflow was started by hand on a branch that still has the released version number."""
    root = checkout(tmp_path / "run", remote, "main")
    assert branch.main(["take"], root) == 1
    assert "isn't tagged v0.2.0" in capsys.readouterr().err
