"""The checklist of a release: an item that fails is reported with its remedy."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.unit.tools.loading import load_tool


@pytest.fixture
def release() -> ModuleType:
    return load_tool("release")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in {
        "src/odradek/__init__.py": '__version__ = "1.2.3"\n',
        "src/odradek/network/handshake.py": (
            'SOFTWARE_NAME, SOFTWARE_VERSION = "odradek", "1.2.3"\n'
        ),
        "CHANGELOG.md": (
            "# Changelog\n\n## Unreleased\n\n## 1.2.3 (2026-11-28)\n\n## 1.2.2 (2026-01-01)\n"
        ),
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *words: str) -> None:
    names = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    subprocess.run(["git", "-C", str(folder), *names, *words], check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "all")


def test_a_checkout_that_is_ready_passes(release: ModuleType, checkout: Path) -> None:
    points = (release.one_version, release.changelog, release.clean_tree, release.free_tag)
    assert [point(checkout, "1.2.3") for point in points] == [
        "the version is 1.2.3 everywhere",
        "the changelog has 1.2.3 (2026-11-28)",
        "everything is committed",
        "the tag v1.2.3 is free",
    ]
    git(checkout, "tag", "-a", "v1.2.3", "-m", "1.2.3")
    assert release.free_tag(checkout, "1.2.3") == "v1.2.3 is the tag of this commit"


@pytest.mark.parametrize(
    "heading", ["1.2.3 (unreleased)", "1.2.2 (2026-01-01)", "1.2.3 (2026-13-01)"]
)
def test_the_newest_changelog_entry_needs_the_version_and_a_date(
    release: ModuleType, checkout: Path, heading: str
) -> None:
    (checkout / "CHANGELOG.md").write_text(f"## {heading}\n")
    with pytest.raises(release.NotYetError, match="make it '1.2.3"):
        release.changelog(checkout, "1.2.3")


def test_changes_listed_as_unreleased_must_be_moved_to_the_release(
    release: ModuleType, checkout: Path
) -> None:
    text = (checkout / "CHANGELOG.md").read_text()
    (checkout / "CHANGELOG.md").write_text(
        text.replace("eased\n", "eased\n\n### Added\n\n- One.\n")
    )
    with pytest.raises(release.NotYetError, match="under Unreleased '### Added': move it to 1.2.3"):
        release.changelog(checkout, "1.2.3")


@pytest.mark.slow
def test_public_names_of_the_release_must_be_recorded(
    release: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = subprocess.run
    done: list[Any] = []

    def once(*words: Any, **options: Any) -> Any:
        """Run the tool once and return its result again, because a run takes seconds."""
        done.extend([] if done else [run(*words, **options)])
        return done[0]

    monkeypatch.setattr(subprocess, "run", once)
    (tmp_path / "pyproject.toml").write_text((release.ROOT / "pyproject.toml").read_text())
    record = tmp_path / "tests/unit/released.json"
    record.parent.mkdir(parents=True)
    text = load_tool("compact_json").compact(load_tool("public_record").record(tmp_path))
    record.write_text(text)
    assert release.recorded(tmp_path, "0.2.0") == "what 0.2.0 makes public is written down"
    record.write_text(text.replace('"AclBinding":', '"AclBond":'))
    with pytest.raises(release.NotYetError, match=r"run tools/public_record.py"):
        release.recorded(tmp_path, "0.2.0")


def test_every_failing_item_of_the_checklist_is_reported(
    release: ModuleType, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    git(checkout, "tag", "v1.2.4")
    (checkout / "new").touch()
    commit(checkout)
    (checkout / "newer").touch()
    points = [release.one_version, release.clean_tree, release.free_tag]
    assert not release.walk(checkout, "1.2.4", points)
    said = capsys.readouterr().out.splitlines()
    assert said == [
        "✗ src/odradek/__init__.py names 1.2.3, pyproject.toml 1.2.4",
        "✗ not committed: newer",
        "✗ v1.2.4 is the tag of another commit: take the next version",
    ]
    with pytest.raises(release.NotYetError, match="of the form"):
        release.one_version(checkout, "1.2")
