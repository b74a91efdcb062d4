"""The documentation site: published files, generated pages, links and timelines."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tools.website import api_pages, build, check, links, stage, traces, versions
from tools.website.command_pages import command_pages, overview

from odradek.cli import COMMANDS
from odradek.common.public_names import PLACES

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def stories() -> list[traces.Shown]:
    """Run the documented recovery scenarios in the simulation; return their timelines."""
    return traces.recorded()


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    return api_pages.api_pages()


def test_every_public_name_is_on_a_reference_page(written: dict[str, str]) -> None:
    assert api_pages.left_out() == set()
    headings = re.findall(r"^##+ (\w+)$", "\n".join(written.values()), re.MULTILINE)
    rows = re.findall(r"^\| `(\w+)` \|", written["errors"], re.MULTILINE)
    assert set(PLACES) - set(headings) - set(rows) == set()
    assert len(headings) == len(set(headings))


def test_an_error_shows_its_remedy_and_its_flags(written: dict[str, str]) -> None:
    _, _, rest = written["errors"].partition("### TlsPortError\n")
    entry = rest.partition("###")[0]
    assert "**What to do:** Set security.protocol to SSL" in entry
    assert "needs a person" in entry
    assert re.search(
        r"\| `NotLeaderOrFollowerError` \| 6 \| .* \| tries again \|", written["errors"]
    )


def test_every_command_and_subcommand_has_a_page() -> None:
    pages = command_pages()
    assert "odradek explain [BOOTSTRAP] [SECONDS] [FLAGS]" in pages["explain"]
    assert "([doctor](../docs/doctor.md))" in pages["doctor"]
    assert pages["partitions"].count("\nPartitions: list") == 1
    assert list(pages) == list(COMMANDS)
    assert "## odradek topics create\n" in pages["topics"]
    assert (
        "| `--partitions N` | Number of partitions; -1: the brokers' default. | `-1` |"
        in pages["topics"]
    )
    assert "odradek topics create TOPIC... [FLAGS]" in pages["topics"]


def test_the_page_of_commands_describes_each_command() -> None:
    assert build.OVERVIEW in (stage.ROOT / "docs/site/commands.md").read_text()
    rows = overview().splitlines()[2:]
    assert len(rows) == len(COMMANDS)
    assert (
        "| [odradek topics](cli/topics.md) | Topics: list, describe, create, alter, delete. |"
        in rows
    )


def test_links_lead_only_to_published_pages(tmp_path: Path) -> None:
    stage.stage(tmp_path)
    design = (tmp_path / "DESIGN.md").read_text()
    assert "](src/" not in design
    assert "```mermaid" not in design
    assert "| spark, testing, compat |  | api |" in design
    assert "| send() | one record, under the host's lock | record_accumulator:" in design
    states = (tmp_path / "docs/state-machines.md").read_text()
    assert "| `resolving` | resolved | `connecting` |" in states
    assert "](../examples/pipelines/README.md)" in (tmp_path / "docs/guide.md").read_text()
    for page in stage.pages():
        assert (tmp_path / page).is_file()
    assert (tmp_path / "_static/traces.js").read_text().startswith("window.odradekTraces = [{")


@pytest.mark.parametrize("git", [True, False])
def test_untracked_and_hidden_files_are_not_published(
    git: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, target = tmp_path / "root", tmp_path / "target"
    ours = ("README.md", "docs/what-happens.json", "docs/site/a.css", "examples/msk/orders.py")
    strange = ("notes.md", "docs/site/b.css", "examples/msk/state.db")
    hidden = ("examples/msk/.env", "docs/site/.a.css.swp")
    for name in (*ours, *(strange if git else ()), *hidden):
        stage.put(root / name, "x")
    if git:
        subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
        subprocess.run(["git", "add", *ours], cwd=root, check=True)
    monkeypatch.setattr(stage, "ROOT", root)
    stage.stage(target)
    found = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()}
    assert found == {*ours, "a.css", "_static/traces.js"} - {"docs/site/a.css"}


@pytest.mark.parametrize("version", ["", ".", "..", "../other", "/x", "a/b", "<b>"])
def test_the_sites_version_must_be_a_single_folder_name(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test replaces the deletion of folders, so that a failing check deletes nothing."""
    emptied: list[Path] = []
    monkeypatch.setattr(shutil, "rmtree", lambda folder, **_: emptied.append(folder))
    monkeypatch.setattr(build, "write_source", lambda *_: None)
    monkeypatch.setattr(build, "sphinx", lambda *_: 1)
    with pytest.raises(SystemExit) as end:
        build.main(["--into", str(tmp_path), "--version", version])
    assert (end.value.code, emptied) == (2, [])
    stage.put(tmp_path / "etc/hosts", "")
    with pytest.raises(SystemExit):
        build.main(["--into", str(tmp_path), "--version", "etc"])
    stage.put(tmp_path / "0.10.0rc1/.buildinfo", "")
    assert emptied == []
    assert build.main(["--into", str(tmp_path), "--version", "0.10.0rc1"]) == 1
    assert emptied == [tmp_path / "0.10.0rc1"]


def test_a_relative_target_folder_is_relative_to_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sphinx(source: Path, target: Path, version: str) -> int:
        assert target == tmp_path / "site/1.0"
        stage.put(target / "index.html", "")
        return 0

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(build, "write_source", lambda *_: None)
    monkeypatch.setattr(build, "sphinx", sphinx)
    assert build.main(["--into", "site", "--version", "1.0"]) == 0


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("[a](guide.md#write)", "[a](guide.md#write)"),
        ("[a](https://x.example/)", "[a](https://x.example/)"),
        ("[guide.md](guide.md#write)", "[Guide](guide.md#write)"),
        ("[a](../src/odradek/api)", "a"),
        ("[`a` b](../tools/lock.py)", "`a` b"),
        ("[a](../examples/polars)", "[a](../examples/polars/README.md)"),
        ("```\n[a](../src/odradek)\n```", "```\n[a](../src/odradek)\n```"),
    ],
)
def test_links_are_rewritten_for_the_published_pages(text: str, becomes: str) -> None:
    known = set(stage.pages())
    assert "".join(stage.relinked(text, Path("docs/start.md"), known, "")) == becomes


def test_links_to_source_files_lead_to_the_repository_if_its_address_is_known() -> None:
    known = set(stage.pages())
    found = stage.relinked("[a](../src/odradek)", Path("docs/a.md"), known, "https://git.example/o")
    assert "".join(found) == "[a](https://git.example/o/src/odradek)"
    with pytest.raises(stage.StagingError, match="no_such"):
        list(stage.relinked("[a](no_such.md)", Path("docs/a.md"), known, ""))


def test_dead_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "a.html").write_text(
        '<p id="x"><a href="#x">1</a><a href="#y">2</a><a href="b/c.html#z">3</a>'
        '<a href="b/c.html#w">4</a><a href="gone.html">5</a><a href="https://x.example">6</a>'
        '<script src="https://x.example/s.js"></script><img src="b/p.png">'
        '<script src="../versions.js"></script><a href="/etc/passwd">7</a>'
    )
    (tmp_path / "b/c.html").write_text('<p id="z"><a href="../a.html#x">1</a>')
    assert links.dead_links(tmp_path) == [
        "a.html: #y: no such place there",
        "a.html: b/c.html#w: no such place there",
        "a.html: gone.html leads nowhere",
        "a.html: loads https://x.example/s.js from elsewhere",
        "a.html: b/p.png leads nowhere",
        "a.html: /etc/passwd leads out of the site",
    ]


def test_versions_of_the_site_are_listed_in_order_with_their_pages(tmp_path: Path) -> None:
    for name in ("0.9.0", "0.10.0", "0.10.0rc1", "0.11.0rc9", "0.11.0rc10"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").write_text("")
    stage.put(tmp_path / "0.10.0/docs/start.html", "")
    versions.write(tmp_path)
    said = (tmp_path / "versions.js").read_text()
    names = ["0.10.0", "0.9.0", "0.11.0rc10", "0.11.0rc9", "0.10.0rc1"]
    assert said.startswith(f"window.odradekVersions = {json.dumps(names)};\n")
    assert '"0.10.0":["docs/start","index"]' in said
    assert 'href="0.10.0/index.html"' in (tmp_path / "index.html").read_text()


def test_stored_timelines_equal_those_of_the_simulation(
    stories: list[traces.Shown],
) -> None:
    assert traces.STORE.read_text() == traces.as_text(stories), (
        "run .venv/bin/python -m tools.website.traces"
    )
    page = traces.PAGE.read_text()
    assert traces.page(page, stories) == page, "run .venv/bin/python -m tools.website.traces"
    assert set(re.findall(r'data-trace="(\w+)"', page)) == {story.name for story in traces.STORIES}


@pytest.mark.slow
def test_timelines_show_the_events_that_the_page_describes(stories: list[traces.Shown]) -> None:
    told = {story["name"]: story for story in stories}
    for name in ("move", "leader", "hang", "outage"):
        assert all(acknowledged and read for _, acknowledged, read in told[name]["records"]), name
    kinds = {name: {event[2] for event in story["events"]} for name, story in told.items()}
    assert "rebootstrap" in kinds["move"]
    assert "silent" in kinds["hang"]
    assert "foreign_cluster" in kinds["foreign"]
    refused = [one[2] for one in told["foreign"]["errors"]]
    assert all(one.startswith("ClusterIdMismatchError") for one in refused)
    assert len(refused) == 2


def test_the_check_of_the_site_says_if_no_browser_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check, "SITE", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("ODRADEK_CHROMIUM", raising=False)
    assert check.main([]) == check.MISSING
    assert "make site" in capsys.readouterr().err
    (tmp_path / "0.1.0").mkdir()
    (tmp_path / "0.1.0/index.html").write_text("")
    assert check.main([]) == check.MISSING
    assert "apt-get install chromium-headless-shell" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):  # without any page, the check would pass
        check.main(["--page", "gude"])
    assert "has 'gude' in its name" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.long  # the quicker tests above and in test_pages.py also check links and pages
def test_sphinx_reads_every_page_and_reports_only_the_dead_link(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "source"
    build.write_source(source)
    with (source / "tasks.md").open("a") as page:
        page.write("\n[dead](docs/start.md#no-such-place)\n")
    assert build.sphinx(source, tmp_path / "site", "0", "dummy") != 0
    complaints = capfd.readouterr().err.strip().splitlines()
    assert len(complaints) == 1, complaints
    assert "tasks.md" in complaints[0]
    assert "no-such-place" in complaints[0]
