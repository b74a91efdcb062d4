"""Fetch the jars of a Kafka version once, and check each against the committed list.

In: a version with a list `kafka-<version>.txt` in this folder (coordinates and SHA-256, written by
`tools/pin_jars.py`). Out: a directory in the user's cache that contains exactly those jars. Must
not: leave a half-filled directory, even if the process is killed, or trust a jar by its name or
because it is in the cache (R-IN-5): each process checks the hashes once before it uses the jars.

The Ivy in the pyspark wheel fetches them, from Maven Central or from the repository in the Ivy
settings that `ODRADEK_IVY_SETTINGS` names (a company's mirror).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from odradek.runtime.private_files import trusted_directory
from odradek.testing.errors import JarsError
from odradek.testing.java import java_home, own_cache

LISTS = Path(__file__).parent
DEFAULT_VERSION = "4.4.0"
TOOLS_OF = {"4.4.0": "4.3.1"}
"""Whose console tools are run for a version whose own aren't on Maven Central."""
_FETCH_TIMEOUT_S = 600.0
_ERROR_TAIL_LINES = 25
_checked: set[Path] = set()
"""Directories whose hashes this process has looked at."""


@dataclass(frozen=True, slots=True)
class Jar:
    """A jar in a committed list: coordinates and checksum."""

    organisation: str
    module: str
    revision: str
    sha256: str
    classifier: str = ""
    extension: str = "jar"

    @property
    def file_name(self) -> str:
        """File name in the cache; contains the organisation, since module names aren't unique."""
        return f"{self.organisation}.{self.module}-{self.revision}.{self.extension}"

    @property
    def artifact(self) -> str:
        """The artifact element of an Ivy file."""
        more = f' e:classifier="{self.classifier}"' if self.classifier else ""
        return f'<artifact name="{self.module}" type="jar" ext="{self.extension}"{more}/>'


def versions() -> list[str]:
    """Return the Kafka versions that have a committed list, oldest first."""
    found = (path.stem.removeprefix("kafka-") for path in LISTS.glob("kafka-*.txt"))
    return sorted(found, key=lambda version: [int(part) for part in version.split(".")])


def resolve_version(version: str) -> str:
    """Return the exact version for one that may be short: `"4.3"` is the newest listed 4.3.x."""
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
        organisation, module, revision, *more = coordinates.split(":")
        jars.append(Jar(organisation, module, revision, sha256, *more))
    return jars


def fetch(version: str, report: Callable[[str], None] = lambda _: None) -> Path:
    """Return the directory with the jars of `version`, which the first call downloads."""
    version = resolve_version(version)
    return fetch_listed(LISTS / f"kafka-{version}.txt", report)


def fetch_listed(listed: Path, report: Callable[[str], None] = lambda _: None) -> Path:
    """Return the directory with the jars of a committed list, named like the list."""
    name = listed.stem
    target = own_cache() / name
    jars = read_list(listed)
    if _trusted(target, jars, report):
        return target
    with _locked(target.parent / f"{name}.lock"):
        if _trusted(target, jars, report):  # another process was faster
            return target
        for stale in target.parent.glob(f".fetch-{name}-*"):  # of a process that was killed
            shutil.rmtree(stale, ignore_errors=True)
        if target.is_dir():  # it isn't what the list says: moved aside, then removed
            aside = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".fetch-{name}-"))
            target.rename(aside / "untrusted")
            shutil.rmtree(aside, ignore_errors=True)
        many = f"{len(jars)} jar{'s' * (len(jars) != 1)}"
        report(f"fetching {many} of {name} into {target}")
        work = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".fetch-{name}-"))
        try:
            _run_ivy(work, jars)
            _check(work / "jars", jars)
            (work / "jars").chmod(0o700)
            (work / "jars").rename(target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return target


def _trusted(target: Path, jars: list[Jar], report: Callable[[str], None]) -> bool:
    """Return whether the directory exists and contains exactly the listed jars.

    It was created by a rename, complete and checked; later changes to it are detected here.
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


def find_ivy_jar() -> Path:
    """Return the Ivy jar in the pyspark wheel, without importing pyspark."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarsError("fetching Kafka's jars needs the Python package pyspark (it brings Ivy)")
    found = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    if not found:
        raise JarsError(f"no Ivy jar in {Path(spec.origin).parent / 'jars'}")
    return found[-1]


def settings_xml(*, descriptors: bool) -> str:
    """Return Ivy settings that name no host, so that Ivy's default Maven repository is used."""
    # Without descriptors no POM is fetched: the list says all there is to know, and 1 request for
    # a jar instead of 10 is the difference between 10 and 40 seconds.
    poms = str(descriptors).lower()
    return (
        '<ivysettings><settings defaultResolver="central"/><resolvers>'
        f'<ibiblio name="central" m2compatible="true" usepoms="{poms}" checkmodified="false"/>'
        "</resolvers></ivysettings>"
    )


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a file lock, which the kernel releases however this process ends."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run_ivy(work: Path, jars: list[Jar]) -> None:
    dependencies = "".join(
        f'<dependency org="{jar.organisation}" name="{jar.module}" rev="{jar.revision}" '
        f'transitive="false" conf="default">{jar.artifact}</dependency>'
        for jar in jars
    )
    (work / "ivy.xml").write_text(
        '<ivy-module version="2.0" xmlns:e="http://ant.apache.org/ivy/extra">'
        '<info organisation="odradek" module="kafka"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )
    settings = os.environ.get("ODRADEK_IVY_SETTINGS", "")
    if not settings:
        settings = str(work / "settings.xml")
        Path(settings).write_text(settings_xml(descriptors=False))
    command = [
        str(java_home() / "bin" / "java"), "-jar", str(find_ivy_jar()), "-warn",
        "-settings", settings, "-cache", str(work / "cache"), "-ivy", str(work / "ivy.xml"),
        "-retrieve", f"{work}/jars/[organisation].[artifact]-[revision].[ext]",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise JarsError(
            f"fetching Kafka's jars did not end within {_FETCH_TIMEOUT_S:.0f} s"
        ) from error
    missing = [jar.file_name for jar in jars if not (work / "jars" / jar.file_name).is_file()]
    if done.returncode != 0 or missing:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-_ERROR_TAIL_LINES:])
        raise JarsError(
            f"Ivy could not fetch {', '.join(missing) or 'the jars'} "
            f"(exit status {done.returncode}):\n{tail}"
        )


def _check(directory: Path, jars: list[Jar]) -> None:
    """Raise unless `directory` holds exactly the listed jars with the listed contents."""
    listed = {jar.file_name for jar in jars}
    for path in directory.iterdir():
        if path.name not in listed:
            path.unlink()  # nothing unlisted may reach a class path
    if wrong := _differences(directory, jars):
        raise JarsError("the fetched jars don't match the list of checksums:\n" + "\n".join(wrong))


def _differences(directory: Path, jars: list[Jar]) -> list[str]:
    """How a directory differs from the list, a line for each file."""
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
