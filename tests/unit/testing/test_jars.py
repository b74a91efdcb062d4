"""Downloads of Kafka's jars: only listed and verified jars are kept, no partial downloads."""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import socket
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from odradek.testing import (
    ClusterStartError,
    JarsError,
    JavaNotFoundError,
    LocalCluster,
    jars,
    local_cluster,
)
from odradek.testing.jars import Jar

CONTENT = {"first": b"one", "second": b"two"}


def jar(name: str) -> Jar:
    return Jar("org.example", name, "1.0", hashlib.sha256(CONTENT[name]).hexdigest())


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(jars, "read_list", lambda _: [jar("first"), jar("second")])
    monkeypatch.setattr(jars, "_checked", set())
    return tmp_path / "odradek"


class FakeDownload:
    """A replacement of jgo that writes the jars and counts its calls."""

    def __init__(self, content: dict[str, bytes]) -> None:
        self.content = content
        self.calls = 0
        self.entered = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    def __call__(self, work: Path, wanted: list[Jar]) -> None:
        self.calls += 1
        self.entered.set()
        assert self.go_on.wait(20)
        (work / "jars").mkdir()
        for one in wanted:
            (work / "jars" / one.file_name).write_bytes(self.content[one.artifact])


def use(monkeypatch: pytest.MonkeyPatch, fake: FakeDownload) -> FakeDownload:
    monkeypatch.setattr(jars, "_download", fake)
    return fake


def test_kafkas_jars_are_fetched_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch, FakeDownload(CONTENT))
    folder = jars.fetch("4.3")
    assert folder == cache / f"kafka-{jars.resolve_version('4.3')}"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        "org.example.first-1.0.jar": b"one",
        "org.example.second-1.0.jar": b"two",
    }
    assert jars.fetch("4.3") == folder
    assert fake.calls == 1


def _exchange(folder: Path) -> str:
    (folder / "org.example.second-1.0.jar").write_bytes(b"planted")
    return "org.example.second-1.0.jar: expected SHA-256"


def _add(folder: Path) -> str:
    (folder / "planted.jar").write_bytes(b"!")
    return "planted.jar isn't listed"


def _remove(folder: Path) -> str:
    (folder / "org.example.first-1.0.jar").unlink()
    return "org.example.first-1.0.jar is missing"


def _open_to_all(folder: Path) -> str:
    folder.chmod(0o777)
    return "other users can write"


@pytest.mark.parametrize("meddle", [_exchange, _add, _remove, _open_to_all])
def test_jars_in_a_modified_cache_are_fetched_again(
    cache: Path, monkeypatch: pytest.MonkeyPatch, meddle: Callable[[Path], str]
) -> None:
    """R-IN-5: hashes are verified when the jars are used, in each process."""
    fake = use(monkeypatch, FakeDownload(CONTENT))
    folder = jars.fetch("4.3")
    why = meddle(folder)
    monkeypatch.setattr(jars, "_checked", set())
    told: list[str] = []
    assert jars.fetch("4.3", told.append) == folder
    assert any(why in line for line in told), told
    assert fake.calls == 2
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        "org.example.first-1.0.jar": b"one",
        "org.example.second-1.0.jar": b"two",
    }
    assert [path for path in cache.iterdir() if path.is_dir()] == [folder]


def test_a_cache_that_other_users_may_write_to_is_rejected(cache: Path) -> None:
    cache.mkdir()
    cache.chmod(0o775)
    with pytest.raises(ClusterStartError, match=r"chmod go-w"):
        jars.fetch("4.3")
    assert list(cache.iterdir()) == []


def test_a_cache_behind_a_link_or_in_a_world_writable_directory_is_rejected(
    cache: Path, tmp_path: Path
) -> None:
    cache.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    with pytest.raises(ClusterStartError, match="symbolic link"):
        jars.fetch("4.3")
    cache.unlink()
    tmp_path.chmod(0o777)
    with pytest.raises(ClusterStartError, match="any user may rename"):
        jars.fetch("4.3")
    tmp_path.chmod(0o700)


def test_a_jar_with_a_wrong_hash_is_rejected_and_deleted(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, FakeDownload({**CONTENT, "second": b"tampered"}))
    with pytest.raises(
        JarsError, match=r"org\.example\.second-1\.0\.jar: expected SHA-256"
    ) as told:
        jars.fetch("4.3")
    assert hashlib.sha256(b"tampered").hexdigest() in str(told.value)
    assert "first" not in str(told.value)
    assert [path for path in cache.iterdir() if path.is_dir()] == []


def test_files_of_an_interrupted_fetch_are_deleted(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, FakeDownload(CONTENT))
    left = cache / f".fetch-kafka-{jars.resolve_version('4.3')}-killed"
    left.mkdir(parents=True)
    (left / "half.jar").write_bytes(b"o")
    folder = jars.fetch("4.3")
    assert [path for path in cache.iterdir() if path.is_dir()] == [folder]


def test_concurrent_fetches_download_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch, FakeDownload(CONTENT))
    fake.go_on.clear()
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(jars.fetch("4.3"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert fake.entered.wait(20)
    fake.go_on.set()
    for thread in threads:
        thread.join(20)
    assert fake.calls == 1
    assert found == [cache / found[0].name] * 2


def test_a_jar_that_is_not_listed_is_not_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Generous(FakeDownload):
        def __call__(self, work: Path, wanted: list[Jar]) -> None:
            super().__call__(work, wanted)
            (work / "jars" / "extra.jar").write_bytes(b"?")

    use(monkeypatch, Generous(CONTENT))
    assert not (jars.fetch("4.3") / "extra.jar").exists()


def test_a_short_version_selects_the_newest_match() -> None:
    assert jars.resolve_version("4") == jars.versions()[-1]
    assert jars.resolve_version("4.1").startswith("4.1.")


@pytest.mark.parametrize("version", ["3.8", "4.30", ""])
def test_the_error_for_an_unknown_version_lists_the_known_ones(version: str) -> None:
    with pytest.raises(JarsError, match=jars.DEFAULT_VERSION.replace(".", r"\.")):
        jars.resolve_version(version)


@pytest.mark.parametrize("version", jars.versions())
def test_the_lists_in_the_repository_contain_all_jars_that_a_broker_needs(version: str) -> None:
    listed = jars.read_list(jars.LISTS / f"kafka-{version}.txt")
    assert all(len(bytes.fromhex(one.sha256)) == 32 for one in listed)
    kafka = {one.artifact for one in listed if one.version == version}
    assert {"kafka_2.13", "kafka-clients", "kafka-server"} <= kafka
    assert ("kafka-tools" in kafka) == (version not in jars.TOOLS_OF)
    assert set(jars.TOOLS_OF.values()) <= set(jars.versions()) - set(jars.TOOLS_OF)
    # Without a logging library for SLF4J, a broker writes no log.
    assert "log4j-slf4j-impl" in {one.artifact for one in listed}


class Repository(BaseHTTPRequestHandler):
    """An HTTP server on this machine that serves `files` by path, like a Maven repository."""

    files: ClassVar[dict[str, bytes]] = {}

    def do_GET(self) -> None:
        content = self.files.get(self.path)
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def repository(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    """Start a repository, name it in jgo's settings, and return the dict of its files."""
    paths = {name: f"/maven2/org/example/{name}/1.0/{name}-1.0.jar" for name in CONTENT}
    files = {paths[name]: content for name, content in CONTENT.items()}
    monkeypatch.setattr(Repository, "files", files)
    with ThreadingHTTPServer(("127.0.0.1", 0), Repository) as server:
        served = threading.Thread(target=server.serve_forever, args=(0.01,))
        served.start()
        name_mirror(cache, monkeypatch, f"http://user:hidden@127.0.0.1:{server.server_port}/maven2")
        yield files
        server.shutdown()
        served.join(20)


def name_mirror(cache: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    settings = cache.parent / "jgo.conf"
    settings.write_text(f"[repositories]\ncentral = {url}\n")
    monkeypatch.setenv("JGO_CONFIG_FILE", str(settings))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def test_jars_come_from_the_repository_in_the_settings(
    cache: Path, repository: dict[str, bytes]
) -> None:
    folder = jars.fetch("4.3")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        "org.example.first-1.0.jar": b"one",
        "org.example.second-1.0.jar": b"two",
    }
    assert [path for path in cache.iterdir() if path.is_dir()] == [folder]


def test_jars_with_a_classifier_or_an_extension_are_requested(
    repository: dict[str, bytes], tmp_path: Path
) -> None:
    one = dataclasses.replace(jar("first"), classifier="all", extension="tar.gz")
    repository["/maven2/org/example/first/1.0/first-1.0-all.tar.gz"] = b"packed"
    jars._download(tmp_path, [one])
    assert (tmp_path / "jars" / one.file_name).read_bytes() == b"packed"


@pytest.fixture
def jgo_s_responses() -> Iterator[None]:
    """Collect the 404 response that jgo leaves open, so that no other test reports it."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.mark.usefixtures("jgo_s_responses")
def test_the_error_for_an_unavailable_jar_omits_the_repositorys_password(
    cache: Path, repository: dict[str, bytes]
) -> None:
    del repository["/maven2/org/example/second/1.0/second-1.0.jar"]
    with pytest.raises(JarsError, match=r"org\.example\.second-1\.0\.jar can't be fetched") as told:
        jars.fetch("4.3")
    assert "jgo.conf" in str(told.value)
    assert "hidden" not in "".join(traceback.format_exception(told.value))
    assert [path for path in cache.iterdir() if path.is_dir()] == []


def test_without_a_network_connection_the_error_names_the_settings_file(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    name_mirror(cache, monkeypatch, f"http://user:hidden@127.0.0.1:{port}/maven2")
    with pytest.raises(JarsError, match="refused") as told:
        jars.fetch("4.3")
    assert all(name in str(told.value) for name in ("JGO_CONFIG_FILE", "HTTPS_PROXY"))
    assert "hidden" not in "".join(traceback.format_exception(told.value))
    assert [path for path in cache.iterdir() if path.is_dir()] == []


@pytest.mark.parametrize(
    "url", ["htps://user:hidden@127.0.0.1/maven2", "http://user:hidden@[127.0.0.1/maven2"]
)
def test_the_error_for_an_invalid_mirror_url_omits_its_password(
    cache: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    """Error messages of the requests library contain the whole URL."""
    name_mirror(cache, monkeypatch, url)
    with pytest.raises(JarsError, match=r"jar can't be fetched: .*JGO_CONFIG_FILE") as told:
        jars.fetch("4.3")
    assert "hidden" not in "".join(traceback.format_exception(told.value))


def test_the_error_for_unreadable_settings_omits_their_text(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_mirror(cache, monkeypatch, "http://user:hidden%40word@127.0.0.1/maven2")
    with pytest.raises(JarsError, match=r"jgo's settings can't be read") as told:
        jars.fetch("4.3")
    assert "hidden" not in "".join(traceback.format_exception(told.value))


def test_without_jgo_the_error_has_the_pip_command(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jgo.config", None)
    with pytest.raises(JarsError, match=r"pip install 'odradek\[cluster\]'"):
        jars.fetch("4.3")


def test_a_missing_java_is_reported_before_the_download(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Path:
        raise JavaNotFoundError("no Java")

    monkeypatch.setattr(local_cluster, "java_home", missing)
    monkeypatch.setattr(jars, "fetch", lambda *_: pytest.fail("downloaded"))
    with pytest.raises(JavaNotFoundError):
        LocalCluster(brokers=1).open()
