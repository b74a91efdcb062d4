"""Create the venv `.venv` with the packages pinned in requirements.lock, and odradek: `make setup`.

Needs a Python 3.11 or newer with venv, and nothing else; uses only the standard library. A stamp
file makes it quick if nothing changed; after a failure or a kill the next run continues where pip
stopped. The record kernels are compiled too: with this machine's C compiler, or with the one in the
`ziglang` wheel, which is only downloaded then.
"""

import hashlib
import os
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = Path(os.environ.get("ODRADEK_VENV", ROOT / ".venv"))  # set by tools/test_python.py
PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".odradek-setup"
LOCK = ROOT / "requirements.lock"
TAIL_LINES = 40
TELL_EVERY = 10.0
REPORT = "from odradek import record; print(record.kernel_warning() or '')"
# Build tools of the few packages without wheels. They are installed first, so that a build
# downloads nothing that the lock doesn't pin.
BUILDERS = ("setuptools", "wheel", "pip", "cython")
COMPILER = "ziglang"  # takes 100 MB: only for machines without a C compiler
KERBEROS = "gssapi"  # a C extension that is installed only where Kerberos' library is
RECORD = ROOT / "src" / "odradek" / "record"


def main() -> None:
    """Create or update the venv according to the lock, unless it is up to date."""
    if sys.version_info < (3, 11):  # noqa: UP036 - whatever python3 is, it runs this file
        sys.exit(
            f"Odradek needs Python 3.11 or newer; {sys.executable} is {sys.version.split()[0]}"
        )
    packages, ourselves = fingerprints()
    stamps = STAMP.read_text().split() if STAMP.is_file() and PYTHON.exists() else []
    if stamps == [packages, ourselves]:
        return
    start = time.monotonic()
    if not has_pip():
        say(f"making the venv {os.path.relpath(VENV, ROOT)}")
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)
    STAMP.unlink(missing_ok=True)
    if packages not in stamps:
        install_packages()
    say("installing Odradek, compiling its record kernels")
    pip("install", "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    kernel = subprocess.run([str(PYTHON), "-c", REPORT], check=True, stdout=subprocess.PIPE)
    if reasons := kernel.stdout.decode().strip():
        say(f"WARNING: {reasons}")
    STAMP.write_text(f"{packages}\n{ourselves}\n")
    say(f"set up in {time.monotonic() - start:.0f} s")


def has_pip() -> bool:
    """Return whether the venv exists with pip; if its creation failed, pip may be missing."""
    if not PYTHON.exists():
        return False
    asked = [str(PYTHON), "-m", "pip", "--version"]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0


def fingerprints() -> tuple[str, str]:
    """Return digests of all that the venv's packages and the installation of odradek depend on."""
    sources = runpy.run_path(str(RECORD / "kernel_sources.py"))
    names = {name for kernel in sources["KERNELS"] for name in sources["sources"](kernel)}
    ours = [ROOT / "pyproject.toml", ROOT / "setup.py", *(RECORD / name for name in sorted(names))]
    return digest([LOCK]) + str(has_kerberos())[0], digest(ours)


def digest(files: list[Path]) -> str:
    """Return a digest of the files' content and of this folder's path."""
    whole = hashlib.sha256(bytes(ROOT))
    for file in files:
        whole.update(hashlib.sha256(file.read_bytes()).digest())
    return whole.hexdigest()


def install_packages() -> None:
    """Install the packages that the lock pins."""
    pins = read_lock()
    if has_compiler():
        pins = [pin for pin in pins if pin.split("==")[0] != COMPILER]
    if not has_kerberos():
        pins = [pin for pin in pins if pin.split("==")[0] != KERBEROS]
    builders = [pin for pin in pins if pin.split("==")[0] in BUILDERS]
    install("the build tools", builders)
    install(f"{len(pins)} packages (a few hundred MB where they are not cached)", pins)


def has_compiler() -> bool:
    """Return whether this machine has a C compiler that setup.py looks for."""
    commands = (os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc", "gcc", "clang")
    return any(shutil.which(command.split()[0]) for command in commands if command)


def has_kerberos() -> bool:
    """Return whether `gssapi` can be compiled; Debian's libkrb5-dev provides `krb5-config`."""
    return has_compiler() and shutil.which("krb5-config") is not None


def read_lock() -> list[str]:
    """Return the lock's entries, each with its hashes."""
    text = "\n".join(line for line in LOCK.read_text().splitlines() if not line.startswith("#"))
    return [entry.strip() for entry in text.replace("\\\n", "").splitlines() if entry.strip()]


def install(what: str, pins: list[str]) -> None:
    """Install pinned packages without dependencies: the lock is complete."""
    start = time.monotonic()
    say(f"installing {what}")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(pins) + "\n")
        file.flush()
        pip(
            "install", "--no-deps", "--require-hashes", "--no-build-isolation",
            "--progress-bar", "off", "--requirement", file.name,
        )  # fmt: skip
    say(f"installed in {time.monotonic() - start:.0f} s")


def pip(*arguments: str) -> None:
    """Run the venv's pip; print its progress, and its output only if it fails."""
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    lines: list[str] = []
    end = threading.Event()
    ticker = threading.Thread(target=tell, args=(lines, end), daemon=True)
    ticker.start()
    try:
        with subprocess.Popen(
            [str(PYTHON), "-m", "pip", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, env=environment,
        ) as process:  # fmt: skip
            lines.extend(line.rstrip() for line in process.stdout or ())
    finally:
        end.set()
        ticker.join()
    if process.returncode != 0:
        print("\n".join(lines[-TAIL_LINES:]), file=sys.stderr)
        sys.exit(f"pip failed with exit status {process.returncode}: pip {' '.join(arguments[:1])}")


def tell(lines: list[str], end: threading.Event) -> None:
    """Print pip's progress every few seconds, as pip is silent while it downloads and unpacks."""
    start = time.monotonic()
    while not end.wait(TELL_EVERY):
        fetched = sum(line.startswith("Collecting ") for line in lines)
        words = lines[-1].split(" (from")[0].split(":")[0].strip()[:60] if lines else "pip starts"
        count = f"{fetched} packages, " if fetched else ""
        say(f"  … {time.monotonic() - start:.0f} s: {count}now: {words}")


def say(what: str) -> None:
    """Print a line and flush the output, so that progress is visible."""
    print(f"setup: {what}", flush=True)


if __name__ == "__main__":
    main()
