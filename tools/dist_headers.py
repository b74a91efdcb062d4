"""Get CPython's headers for `make dist` from this machine's interpreters or from Debian.

In: a version such as "3.14". Out: a folder with `Python.h` and the `pyconfig.h` of a 64-bit Linux,
which is the same for x86_64 and aarch64, glibc and musl, in all that extensions use. If this
machine has no such interpreter, apt downloads the package of Debian unstable, with the mirror and
the keys of this machine. Must not: install anything.
"""

import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SUITE = "sid"
PATIENCE = 300
"""Timeout of one apt command in seconds."""


class NoHeadersError(Exception):
    """The headers of a Python version aren't available on this machine."""


def headers(version: str, to: Path, given: dict[str, Path]) -> tuple[Path, str]:
    """Copy a version's headers into a folder of `to`; return that folder and the exact release."""
    target = to / version
    if version in given:
        found = given[version] if release(given[version]) else None
    else:
        found = next((one for one in places(version) if release(one)), None)
    if found is None and version not in given:
        found = from_debian(version, to / f"debian-{version}")
    if found is None:
        raise NoHeadersError(f"no headers of CPython {version} are here")
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(found, target)
    configured = multiarch_configuration(found, version)
    shutil.copyfile(configured, target / "pyconfig.h")
    text = (target / "pyconfig.h").read_text()
    sizes = [f"#define {name} 8\n" in text for name in ("SIZEOF_LONG", "SIZEOF_VOID_P")]
    if not all(sizes):
        raise NoHeadersError(f"{configured.name} of CPython {version} isn't of a 64-bit Linux")
    return target, str(release(target))


def places(version: str) -> Iterator[Path]:
    """Yield folders that may have a version's headers: this Python's, pyenv's, uv's, /usr's."""
    if version == sysconfig.get_python_version():
        yield Path(sysconfig.get_path("include"))
    homes = [
        (Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions", f"{version}.*"),
        (Path.home() / ".local" / "share" / "uv" / "python", f"cpython-{version}.*"),
    ]
    for folder, pattern in homes:
        for one in sorted(folder.glob(pattern), key=newest, reverse=True):
            yield one / "include" / f"python{version}"
    if found := shutil.which(f"python{version}"):
        yield Path(found).resolve().parent.parent / "include" / f"python{version}"
    for prefix in ("/usr/local", "/usr"):
        yield Path(prefix) / "include" / f"python{version}"


def newest(folder: Path) -> list[int]:
    """Return the numbers in a folder's name, by which folders are sorted by version."""
    return [int(number) for number in re.findall(r"\d+", folder.name)]


def release(folder: Path) -> str | None:
    """Return the release of the headers; None if they are missing or of a pre-release."""
    if not (folder / "Python.h").is_file():
        return None
    text = (folder / "patchlevel.h").read_text()
    found = re.search(r'^#define PY_VERSION\s+"([\d.]+)"', text, re.MULTILINE)
    return found[1] if found else None


def multiarch_configuration(folder: Path, version: str) -> Path:
    """Return the real `pyconfig.h` of one platform: Debian's file of that name includes others."""
    if "multiarch" not in (folder / "pyconfig.h").read_text():
        return folder / "pyconfig.h"
    return next(folder.parent.glob(f"*-linux-gnu/python{version}/pyconfig.h"))


def from_debian(version: str, to: Path) -> Path | None:
    """Unpack Debian's package with a version's headers; None without apt or the package.

    Apt's package lists for this download are in `to`, so that the machine's own lists don't change.
    """
    unpacked = to / "unpacked" / "usr" / "include" / f"python{version}"
    if release(unpacked):
        return unpacked
    tools = all(shutil.which(name) for name in ("apt-get", "apt-cache", "dpkg-deb"))
    mirror = tools and KEYS.is_file() and debian_mirror()
    if not mirror:
        return None
    shutil.rmtree(to, ignore_errors=True)
    for folder in ("lists/partial", "archives/partial"):
        (to / folder).mkdir(parents=True)
    (to / "sources.list").write_text(f"deb [signed-by={KEYS}] {mirror} {SUITE} main\n")
    (to / "apt.conf").write_text(
        f'Dir::State::lists "{to}/lists"; Dir::Cache::archives "{to}/archives";\n'
        'Dir::Cache::pkgcache ""; Dir::Cache::srcpkgcache ""; APT::Sandbox::User "root";\n'
        f'Dir::Etc::sourcelist "{to}/sources.list"; Dir::Etc::sourceparts "-";\n'
    )
    environment = {**os.environ, "APT_CONFIG": str(to / "apt.conf")}
    commands = (
        ["apt-get", "-qq", "update"],
        ["apt-get", "-qq", "download", f"libpython{version}-dev"],
    )
    for command in commands:
        done = subprocess.run(
            command, cwd=to, env=environment, capture_output=True, timeout=PATIENCE, check=False
        )
        if done.returncode != 0:
            return None
    package = next(to.glob("*.deb"))
    subprocess.run(["dpkg-deb", "-x", str(package), str(to / "unpacked")], check=True)
    shutil.rmtree(to / "lists")  # the package lists take a hundred megabytes
    return unpacked if release(unpacked) else None


def debian_mirror() -> str | None:
    """Return the address of this machine's Debian mirror."""
    command = [
        "apt-get",
        "indextargets",
        "--format",
        "$(REPO_URI) $(ORIGIN)",
        "Identifier: Packages",
    ]
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split("\n")
    found = [line.split()[0] for line in lines if line.endswith(" Debian")]
    return next((one for one in found if "security" not in one), None)
