"""Test that `ssl.keylog.file` alone decides to which file TLS session keys are written."""

from __future__ import annotations

import logging
import ssl
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.unit.network.tls_peers import server_context, shake
from tests.unit.runtime.test_tls_context import config, hashed

from odradek.common.errors import ConfigurationError
from odradek.runtime.tls.tls_context import TlsContexts, https_context, tls_source
from odradek.testing.brokers.authority import Authority, KeyAndCertificate


def settings_of(authority: Authority, **given: Any) -> dict[str, Any]:
    return {"ssl.truststore.location": authority.certificate, **given}


def test_session_keys_are_written_to_the_configured_file(
    authority: Authority,
    broker: KeyAndCertificate,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = tmp_path / "keys.log"
    source = tls_source(config(settings_of(authority, **{"ssl.keylog.file": path})))
    assert source is not None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "the traffic, including passwords, can be decrypted" in caplog.text
    assert str(path) in caplog.text
    shake(source(), server_context(broker))
    assert "CLIENT_TRAFFIC_SECRET_0 " in path.read_text()
    assert len(caplog.records) == 1  # one warning per client, not per connection


@pytest.mark.parametrize("word", ["SSLKEYLOGFILE", None])
def test_sslkeylogfile_is_used_only_if_the_option_names_it(
    authority: Authority,
    broker: KeyAndCertificate,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    word: str | None,
) -> None:
    path = tmp_path / "keys.log"
    monkeypatch.setenv("SSLKEYLOGFILE", str(path))
    wanted = config(settings_of(authority, **{"ssl.keylog.file": word}))
    source = tls_source(wanted)
    assert source is not None
    shake(source(), server_context(broker))
    assert path.exists() == (word is not None) == bool(caplog.records)
    assert https_context(wanted).keylog_filename is None  # no keys of token servers are logged
    monkeypatch.delenv("SSLKEYLOGFILE")
    caplog.clear()
    again = tls_source(wanted)
    assert again is not None
    assert again().keylog_filename is None
    assert not caplog.records


def test_a_key_log_file_that_others_can_read_is_rejected(
    authority: Authority, tmp_path: Path
) -> None:
    path = tmp_path / "keys.log"
    path.touch()
    path.chmod(0o640)
    for place, what in ((path, "chmod 600"), (tmp_path, "can't be written")):
        with pytest.raises(ConfigurationError, match=what):
            tls_source(config(settings_of(authority, **{"ssl.keylog.file": place})))


def test_changed_certificates_in_a_folder_of_authorities_take_effect(
    authority: Authority,
    other: Authority,
    broker: KeyAndCertificate,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The next connection is verified with the changed certificates."""
    caplog.set_level(logging.INFO)
    folder = hashed(authority, tmp_path)
    (folder / "dangling").symlink_to(folder / "nothing")
    contexts = TlsContexts(config({"ssl.truststore.location": folder}))
    first = contexts.context()
    shake(first, server_context(broker))
    assert contexts.context() is first
    (file,) = (one for one in folder.iterdir() if one.exists())
    file.write_bytes(other.certificate.read_bytes())
    assert contexts.context() is not first
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(contexts.context(), server_context(broker))
    assert "reloaded" in caplog.text
