"""A FastStream application on this package: without `install` it would use aiokafka.

    KAFKA=localhost:9092 faststream run bills:app

FastStream's Kafka broker imports aiokafka; here the import returns `odradek.compat.aiokafka`, whose
clients keep working when all brokers are replaced. aiokafka needn't be installed.
"""

from odradek.compat import install

install("aiokafka")

import os  # noqa: E402

from faststream import FastStream  # noqa: E402
from faststream.kafka import KafkaBroker  # noqa: E402

broker = KafkaBroker(os.environ.get("KAFKA", "localhost:9092"))
app = FastStream(broker)


@broker.subscriber("orders", group_id="billing", auto_offset_reset="earliest")
@broker.publisher("bills")
async def bill(order: str) -> str:
    """Create a bill for each order."""
    return f"one {order}, please pay"


@broker.subscriber("bills", group_id="printing", auto_offset_reset="earliest")
async def printed(text: str) -> None:
    """Print each bill."""
    print(text, flush=True)
