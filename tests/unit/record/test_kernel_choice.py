"""Test which record implementation is used, native or Python, and what it imports."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.time_limits import HANG_S

from odradek.common.errors import ConfigurationError, UnsupportedFeatureError
from odradek.record import KERNEL, kernel_sources
from odradek.record.kernel_sources import choose_kernel, kernel_warning

RECORD = Path(kernel_sources.__file__).parent


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment}, capture_output=True, text=True, check=False,
        timeout=HANG_S,
    )  # fmt: skip


def test_the_native_kernel_is_chosen_unless_it_is_missing_or_python_is_requested(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert choose_kernel("python") == "python"
    with pytest.raises(ConfigurationError, match="must be native or python"):
        choose_kernel("rust")
    monkeypatch.setattr(kernel_sources, "load", lambda name: "not compiled")
    assert choose_kernel(None) == choose_kernel("") == "python"
    with pytest.raises(UnsupportedFeatureError, match=r"kernel: not compiled"):
        choose_kernel("native")
    monkeypatch.setattr(kernel_sources, "load", lambda name: kernel_sources)
    assert choose_kernel(None) == choose_kernel("native") == "native"
    assert kernel_warning() is None


@pytest.mark.slow
@pytest.mark.skipif(KERNEL != "native", reason="plain Python needs the library")
def test_native_kernels_work_without_the_checksum_library() -> None:
    program = (
        "import sys\n"
        "sys.modules['google_crc32c'] = None\n"  # the library is slow on musl and 3.14t
        "from odradek import Consumer, Producer\n"
        "from odradek.testing import FakeCluster\n"
        "with FakeCluster(topics=['flights:1']) as cluster:\n"
        "    servers = {'bootstrap.servers': cluster.bootstrap_servers}\n"
        "    with Producer(servers) as producer:\n"
        "        producer.send('flights', b'JFK')\n"
        "    with Consumer(servers) as consumer:\n"
        "        consumer.assign({('flights', 0): 0})\n"
        "        print(*[record.value for record in consumer.poll(10)])\n"
    )
    done = run(program)
    assert (done.returncode, done.stdout) == (0, "b'JFK'\n"), done.stderr


@pytest.mark.slow
def test_using_python_instead_of_the_kernel_is_logged_once_unless_the_user_chose_python() -> None:
    program = (
        "import logging\n"
        "logging.basicConfig(format='%(levelname)s %(name)s: %(message)s')\n"
        "from odradek.record import kernel_sources\n"
        "kernel_sources.load = lambda name: 'it is broken'\n"
        "import importlib\n"
        "from odradek import record\n"
        "importlib.reload(record)\n"
        "assert record.KERNEL == 'python', record.KERNEL\n"
        "for _ in range(2):\n"
        "    record.decode(memoryview(b''), start_offset=0)\n"
    )
    chosen = run(program, ODRADEK_KERNEL="python")
    assert (chosen.returncode, chosen.stderr) == (0, "")
    fallen = run(program, ODRADEK_KERNEL="")
    assert fallen.returncode == 0, fallen.stderr
    assert fallen.stderr.count("WARNING odradek.record: the native record kernel can't") == 1
    assert fallen.stderr.count("it is broken") == len(kernel_sources.KERNELS)


def test_a_compiled_kernel_whose_sources_have_changed_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "odradek.record.kernel"
    for source in kernel_sources.sources(name):
        shutil.copy(RECORD / source, tmp_path)
    built = kernel_sources.digest(tmp_path, name)
    assert built == kernel_sources.digest(RECORD, name)
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(SOURCES=built))
    monkeypatch.setattr(kernel_sources, "__file__", str(tmp_path / "kernel_sources.py"))
    assert (
        kernel_sources.load(name) == "not compiled"
    )  # the .py source isn't used instead, as it is slow
    (tmp_path / f"kernel{EXTENSION_SUFFIXES[0]}").touch()
    assert not isinstance(kernel_sources.load(name), str)
    for source in kernel_sources.sources(name):
        before = (tmp_path / source).read_bytes()
        (tmp_path / source).write_bytes(before + b"\n")
        assert kernel_sources.load(name) == "the sources have changed since it was compiled"
        (tmp_path / source).write_bytes(before)
    (tmp_path / "native.h").unlink()  # without sources, there is nothing to compare
    assert not isinstance(kernel_sources.load(name), str)


@pytest.mark.slow
def test_encoding_and_decoding_records_imports_neither_arrow_nor_a_codec() -> None:
    program = (
        "import sys\n"
        "from odradek import record\n"
        "from odradek.record import arrow\n"
        "builder = record.BatchBuilder(1000, None)\n"
        "builder.append(b'k', b'v', (), 0)\n"
        "assert len(list(record.decode(builder.build(), start_offset=0).columns)) == 1\n"
        "assert not {'pyarrow', 'numpy', 'zstandard', 'threading'} & set(sys.modules)\n"
    )
    done = run(program, ODRADEK_KERNEL=KERNEL)
    assert (done.returncode, done.stderr) == (0, "")
