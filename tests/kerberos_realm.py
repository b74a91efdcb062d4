"""Run a Kerberos realm of MIT on loopback: principals, keytabs and a key distribution centre.

The centre runs as long as the `with` block. Debian packages: krb5-kdc and krb5-admin-server.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

REALM = "ODRADEK.TEST"
TIMEOUT_S = 20.0
_FOLDERS = "/usr/sbin:/usr/local/sbin:/usr/lib/heimdal-servers"


def missing() -> str:
    """Return the programs for a realm that this machine lacks; empty if none."""
    tools = [name for name in ("krb5kdc", "kdb5_util", "kadmin.local") if _tool(name) is None]
    return f"{', '.join(tools)} (Debian: krb5-kdc krb5-admin-server)" if tools else ""


def _tool(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=_FOLDERS)


class Realm:
    """Kerberos realm in its own folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = _free_port()
        self.conf = folder / "krb5.conf"
        kdc_conf = folder / "kdc.conf"
        self.conf.write_text(
            f"""[libdefaults]
default_realm = {REALM}
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
udp_preference_limit = 1
[realms]
{REALM} = {{
  kdc = 127.0.0.1:{self.port}
}}
[domain_realm]
localhost = {REALM}
"""
        )
        kdc_conf.write_text(
            f"""[kdcdefaults]
kdc_listen = 127.0.0.1:{self.port}
kdc_tcp_listen = 127.0.0.1:{self.port}
[realms]
{REALM} = {{
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
  acl_file = {folder}/acl
  max_life = 1h
}}
[logging]
kdc = FILE:{folder}/kdc.log
"""
        )
        self.environment = {
            **os.environ,
            "KRB5_CONFIG": str(self.conf),
            "KRB5_KDC_PROFILE": str(kdc_conf),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
        self._process = subprocess.Popen(
            [str(_tool("krb5kdc")), "-n", "-r", REALM],
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        end = time.monotonic() + TIMEOUT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
            except OSError:
                if time.monotonic() > end or self._process.poll() is not None:
                    self.__exit__()
                    raise
                time.sleep(0.05)
            else:
                return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(TIMEOUT_S)

    def keytab(self, principal: str) -> Path:
        """Create a principal and return its keytab.

        All principals have the same key, which isn't salted with their names. So a service's keytab
        is valid for each name that the service gets later.
        """
        path = self.folder / f"{principal.replace('/', '-')}.keytab"
        if not path.exists():
            key = "-e aes256-cts-hmac-sha1-96:onlyrealm"
            self._admin(f"addprinc {key} -pw one-for-all {principal}@{REALM}")
            self._admin(f"ktadd -norandkey -k {path} {principal}@{REALM}")
        assert path.exists()
        return path

    def _admin(self, query: str) -> None:
        self._run("kadmin.local", "-r", REALM, "-q", query)

    def _run(self, name: str, *arguments: str) -> None:
        subprocess.run(
            [str(_tool(name)), *arguments],
            env=self.environment,
            check=True,
            capture_output=True,
            timeout=TIMEOUT_S,
        )


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port
