"""Replace the name and password of a running client.

In: the client's mechanism, the new credentials. Out: the mechanism object, changed to use the new
credentials from now on. Must not: touch existing sessions: a connection uses the new credentials
when its session ends (KIP-368).
"""

from __future__ import annotations

from odradek.common.errors import IllegalStateError
from odradek.common.secret import Secret
from odradek.network.sasl.mechanism import Credentials, Mechanism
from odradek.network.sasl.plain import Plain
from odradek.network.sasl.scram import Scram


def replace_credentials(mechanism: Mechanism | None, username: str, password: Secret) -> None:
    """Set the mechanism's user name and password; raise if it uses no password."""
    if not isinstance(mechanism, Plain | Scram):
        name = "no SASL" if mechanism is None else mechanism.name
        raise IllegalStateError(
            f"this client uses {name}, which has no user name and password to replace"
        )
    mechanism.use(Credentials(username, password))
