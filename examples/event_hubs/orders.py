"""Write records to Azure Event Hubs and read them back, through its Kafka endpoint.

    export EVENT_HUBS_CONNECTION_STRING='Endpoint=sb://….servicebus.windows.net/;SharedAccess…'
    export TOPIC=orders    # an event hub of the namespace
    python orders.py

The important part is `settings`: it reads all settings from the environment, so there is no file
with a secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from odradek import Consumer, Producer

PORT = 9093
QUIET = {
    # Azure's load balancers drop connections that were idle for 240 s; the service's documentation
    # recommends these two settings.
    "connections.max.idle.ms": "180000",
    "metadata.max.age.ms": "180000",
    "request.timeout.ms": "60000",
}


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return settings for a namespace: with a connection string, or else for an Entra application.

    The latter needs EVENT_HUBS_NAMESPACE, AZURE_TENANT_ID, AZURE_CLIENT_ID, AZURE_CLIENT_SECRET.
    """
    if secret := environment.get("EVENT_HUBS_CONNECTION_STRING"):
        match = re.search(r"Endpoint=sb://([^/;]+)", secret)
        if match is None:
            raise SystemExit("EVENT_HUBS_CONNECTION_STRING has no Endpoint=sb://…/")
        host = match[1]
        login = {
            "sasl.mechanism": "PLAIN",
            "sasl.username": "$ConnectionString",  # literally
            "sasl.password": secret,
        }
    else:
        host = f"{environment['EVENT_HUBS_NAMESPACE']}.servicebus.windows.net"
        place = f"https://login.microsoftonline.com/{environment['AZURE_TENANT_ID']}"
        login = {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": f"{place}/oauth2/v2.0/token",
            "sasl.oauthbearer.client.id": environment["AZURE_CLIENT_ID"],
            "sasl.oauthbearer.client.secret": environment["AZURE_CLIENT_SECRET"],
            "sasl.oauthbearer.scope": f"https://{host}/.default",
        }
    return {
        "bootstrap.servers": f"{host}:{PORT}",
        "security.protocol": "SASL_SSL",
        **login,
        **QUIET,
    }


def there_and_back(config: Mapping[str, str], topic: str, count: int = 10) -> list[bytes]:
    """Write records and read only these, whatever else is in the event hub."""
    with (
        Producer({**config, "max.request.size": "1000000"}) as producer,
        Consumer(config) as reader,
    ):
        partitions = reader.partitions_for(topic, timeout=60)
        begin = reader.end_offsets(partitions, timeout=60)
        producer.send_many(topic, [b"order %d" % n for n in range(count)]).result(timeout=60)
        reader.assign(begin, until=reader.end_offsets(partitions, timeout=60))
        return [record.value or b"" for record in reader.records(timeout=60)]


def main() -> None:
    """Print the records that were read back; an error's text says what is wrong."""
    found = there_and_back(settings(os.environ), os.environ.get("TOPIC", "orders"))
    print(f"{len(found)} records there and back: {b', '.join(sorted(found)).decode()}")


if __name__ == "__main__":
    main()
