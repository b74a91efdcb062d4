"""Fetch the jars of a Kafka version once, and check each against the committed list.

In: a version with a list `kafka-<version>.txt` in this folder (coordinates and SHA-256, written by
`tools/pin_jars.py`). Out: a directory in the user's cache that contains exactly those jars. Must
not: leave an incomplete directory, even if the process is killed, or trust a jar because of its
name or its place in the cache (R-IN-5): each process checks the hashes once before it uses the
jars.

The package jgo (`odradek[cluster]`) downloads them from Maven Central, or from the repositories in
its settings (for example a company's mirror). It doesn't need Java.
"""

from __future__ import annotations

import configparser
import contextlib
import fcntl
import hashlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odradek.common.printable import sentence
from odradek.runtime.private_files import trusted_directory
from odradek.testing.errors import JarsError
from odradek.testing.java import own_cache

LISTS = Path(__file__).parent
DEFAULT_VERSION = "4.4.0"
TOOLS_OF = {"4.4.0": "4.3.1"}
"""Kafka versions whose console tools aren't on Maven Central, with the version whose tools are
used."""
_CONNECTIONS = 6
_ANSWER_TIMEOUT_S = 30
_MIRROR = (
    "A mirror is named in jgo's settings (~/.config/jgo.conf, or the file in JGO_CONFIG_FILE): "
    "`central = URL` under `[repositories]`. HTTPS_PROXY names a proxy, REQUESTS_CA_BUNDLE a file "
    "of certificates."
)
_USER = re.compile(r"//\S*@")
"""User and password of a URL that an error's text may contain."""
_checked: set[Path] = set()
"""Directories whose files this process has compared with the committed hashes."""


@dataclass(frozen=True, slots=True)
class Jar:
    """A jar in a committed list: coordinates and checksum."""

    group: str
    artifact: str
    version: str
    sha256: str
    classifier: str = ""
    extension: str = "jar"

    @property
    def file_name(self) -> str:
        """File name in the cache; contains the group, since artifacts' names aren't unique."""
        return f"{self.group}.{self.artifact}-{self.version}.{self.extension}"


def versions() -> list[str]:
    """Return the Kafka versions that have a committed list, oldest first."""
    found = (path.stem.removeprefix("kafka-") for path in LISTS.glob("kafka-*.txt"))
    return sorted(found, key=lambda version: [int(part) for part in version.split(".")])


def resolve_version(version: str) -> str:
    """Return the exact version for a short one: `"4.3"` is the newest listed 4.3.x."""
    fitting = [one for one in versions() if one == version or one.startswith(f"{version}.")]
    if not fitting:
        raise JarsError(
            f"no list of jars for Kafka {version!r}; there is one for: {', '.join(versions())}. "
            "tools/pin_jars.py writes lists for other versions."
        )
    return fitting[-1]


def read_list(listed: Path) -> list[Jar]:
    """Return the jars that a committed file lists."""
    jars = []
    for line in listed.read_text().splitlines():
        coordinates, sha256 = line.split()
        group, artifact, version, *more = coordinates.split(":")
        jars.append(Jar(group, artifact, version, sha256, *more))
    return jars


def fetch(version: str, report: Callable[[str], None] = lambda _: None) -> Path:
    """Return the directory with the jars of `version`, which the first call downloads."""
    version = resolve_version(version)
    return fetch_listed(LISTS / f"kafka-{version}.txt", report)


def fetch_listed(listed: Path, report: Callable[[str], None] = lambda _: None) -> Path:
    """Return the directory with a list's jars; the directory is named like the list."""
    name = listed.stem
    target = own_cache() / name
    jars = read_list(listed)
    if _trusted(target, jars, report):
        return target
    with _locked(target.parent / f"{name}.lock"):
        if _trusted(target, jars, report):  # fetched by another process
            return target
        for stale in target.parent.glob(f".fetch-{name}-*"):  # left by a killed process
            shutil.rmtree(stale, ignore_errors=True)
        if target.is_dir():  # some jars differ from the list: replace all
            aside = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".fetch-{name}-"))
            target.rename(aside / "untrusted")
            shutil.rmtree(aside, ignore_errors=True)
        many = f"{len(jars)} jar{'s' * (len(jars) != 1)}"
        report(f"fetching {many} of {name} into {target}")
        work = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".fetch-{name}-"))
        try:
            _download(work, jars)
            _check(work / "jars", jars)
            (work / "jars").chmod(0o700)
            (work / "jars").rename(target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return target


def _trusted(target: Path, jars: list[Jar], report: Callable[[str], None]) -> bool:
    """Return whether the directory exists and contains exactly the listed jars.

    The directory was complete and checked when it was created, by a rename; later changes are
    detected here.
    """
    if target in _checked:
        return True
    if not target.is_dir():
        return False
    wrong = trusted_directory(target) or "; ".join(_differences(target, jars))
    if wrong:
        report(
            f"the jars in {target} don't match the list of checksums and are fetched again: {wrong}"
        )
        return False
    _checked.add(target)
    return True


def _maven_context(files: Path) -> Any:
    """Return jgo's access to the configured repositories; downloads are stored in `files`."""
    try:
        from jgo.config import GlobalSettings
        from jgo.maven import MavenContext
    except ImportError as error:
        raise JarsError(
            f"fetching Kafka's jars needs the package jgo: pip install 'odradek[cluster]' ({error})"
        ) from error
    context = MavenContext(repo_cache=files, timeout=_ANSWER_TIMEOUT_S)
    try:
        context.remote_repos.update(GlobalSettings.load().repositories)
    except configparser.Error as error:
        # The error's text may contain a URL with a password.
        reason = type(error).__name__
        raise JarsError(f"jgo's settings can't be read: {reason}. {_MIRROR}") from None
    return context


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a file lock, which the kernel releases when this process ends in any way."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _download(work: Path, jars: list[Jar]) -> None:
    """Download the jars into `work / "jars"`; their content isn't checked yet."""
    context = _maven_context(work / "repository")
    (work / "jars").mkdir()

    def download(jar: Jar) -> None:
        component = context.project(jar.group, jar.artifact).at_version(jar.version)
        try:
            file = component.artifact(jar.classifier, jar.extension).resolve()
        except (OSError, ValueError) as error:  # requests' errors are OSErrors
            reason = _USER.sub("//", str(error))
            raise JarsError(
                f"{jar.file_name} can't be fetched: {sentence(reason)} {_MIRROR}"
            ) from None
        except RuntimeError:  # the error may contain passwords
            raise JarsError(
                f"{jar.file_name} can't be fetched: no repository in jgo's settings, by default "
                f"Maven Central, provides it. {_MIRROR}"
            ) from None
        file.rename(work / "jars" / jar.file_name)

    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        list(pool.map(download, jars))


def _check(directory: Path, jars: list[Jar]) -> None:
    """Raise unless `directory` holds exactly the listed jars with the listed contents."""
    listed = {jar.file_name for jar in jars}
    for path in directory.iterdir():
        if path.name not in listed:
            path.unlink()  # keep unlisted files out of class paths
    if wrong := _differences(directory, jars):
        raise JarsError("the fetched jars don't match the list of checksums:\n" + "\n".join(wrong))


def _differences(directory: Path, jars: list[Jar]) -> list[str]:
    """Return the differences between a directory and the list, one line per file."""
    expected = {jar.file_name: jar for jar in jars}
    found = {path.name for path in directory.iterdir()}
    wrong = [f"{name} isn't listed" for name in sorted(found - expected.keys())]
    for name, jar in expected.items():
        if name not in found:
            wrong.append(f"{name} is missing")
            continue
        with (directory / name).open("rb") as file:
            actual = hashlib.file_digest(file, "sha256").hexdigest()
        if actual != jar.sha256:
            wrong.append(f"{name}: expected SHA-256 {jar.sha256}, got {actual}")
    return wrong
