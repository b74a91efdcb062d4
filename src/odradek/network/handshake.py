"""What comes between TCP and READY: ApiVersions (KIP-511), later SASL as well.

In: a connection whose TCP is up. Out: the versions that the broker speaks, or a typed error.
Must not: send anything else before the answer is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

from odradek.common.errors import ConnectionFailedError
from odradek.common.kafka_errors import UnsupportedVersionError, error_for
from odradek.network.connection import Connection
from odradek.network.flow import Flow, Wait

if TYPE_CHECKING:
    from odradek.network.network_client import NetworkClient

SOFTWARE_NAME, SOFTWARE_VERSION = "odradek", "0.1.0"
MAX_API_VERSIONS = 4
"""Version 5 (KIP-1242) isn't spoken by any released broker yet."""


def check_api_versions(
    network: NetworkClient, connection: Connection, now: float
) -> Flow[tuple[dict[int, tuple[int, int]], float]]:
    """Ask which versions the broker speaks; ask again more simply where it knows only older ones.

    A broker that doesn't know our version answers UNSUPPORTED_VERSION in the oldest layout, with
    the range that it does know (KIP-511).
    """
    version = min(ApiVersionsRequest.MAX_VERSION, MAX_API_VERSIONS)
    for _ in range(2):
        body = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
        )
        request = network.send_version(connection, body, version, now)
        now = yield Wait((request.reply,))
        response = cast("ApiVersionsResponse", request.reply.result())
        if response.error_code == 0:
            return {k.api_key: (k.min_version, k.max_version) for k in response.api_keys}, now
        if response.error_code != UnsupportedVersionError.code or version == 0:
            break
        known = {k.api_key: k.max_version for k in response.api_keys}
        version = min(version - 1, known.get(ApiVersionsRequest.API_KEY, 0))
    error = error_for(response.error_code, response_text(response))
    raise ConnectionFailedError(f"ApiVersions was refused: {type(error).__name__}: {error}")


def response_text(response: ApiVersionsResponse) -> str:
    """What goes with the error code in a message."""
    return f"(error {response.error_code})"
