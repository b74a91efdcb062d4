"""Write records to Amazon MSK and read them back, authenticated by IAM.

    export MSK_BROKERS=b-1.….kafka.eu-west-1.amazonaws.com:9098,b-2.…:9098 TOPIC=orders
    python orders.py

The important part is `settings`, which reads all settings from the environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from odradek import Consumer, Producer

ROLE = "AWS_ROLE_ARN_FOR_KAFKA"


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return settings for clients of MSK with IAM.

    Credentials are AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or with the extra `aws` those that
    botocore finds: profiles, single sign-on, the role of a machine, a container or a pod. The
    region is part of the brokers' names; for other names set AWS_REGION.
    """
    found = {
        "bootstrap.servers": environment["MSK_BROKERS"],  # IAM uses port 9098, or 9198
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "AWS_MSK_IAM",
        # MSK replaces brokers while it patches them: a record may wait for that.
        "delivery.timeout.ms": "300000",
    }
    if role := environment.get(ROLE):
        found["sasl.aws.msk.iam.role.arn"] = role
    return found


def there_and_back(config: Mapping[str, str], topic: str, count: int = 10) -> list[bytes]:
    """Write records and read only these, whatever else is in the topic."""
    shared = {name: value for name, value in config.items() if name != "delivery.timeout.ms"}
    with Producer(config) as producer, Consumer(shared) as consumer:
        partitions = consumer.partitions_for(topic, timeout=60)
        begin = consumer.end_offsets(partitions, timeout=60)
        producer.send_many(topic, [b"order %d" % n for n in range(count)]).result(timeout=60)
        consumer.assign(begin, until=consumer.end_offsets(partitions, timeout=60))
        return [record.value or b"" for record in consumer.records(timeout=60)]


def main() -> None:
    """Print the records that were read back; an error's text says what is wrong."""
    found = there_and_back(settings(os.environ), os.environ.get("TOPIC", "orders"))
    print(f"{len(found)} records there and back: {b', '.join(sorted(found)).decode()}")


if __name__ == "__main__":
    main()
