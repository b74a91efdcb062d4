"""A FastAPI service that writes orders from HTTP requests to Kafka, and reads and counts them.

    KAFKA=localhost:9092 uvicorn orders:app

One producer and one consumer live as long as the service. `/health`, `/explain` and `/metrics`
report the clients' own state, without a request to a broker. While the cluster is down, `/health`
answers 503, and orders wait for their acknowledgement for at most 30 s (`LIMITS`); no restart is
needed when the cluster is back. An order that got a 503 may have been written anyway.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException, Response

from odradek import AsyncConsumer, AsyncProducer, KafkaError
from odradek.monitoring import prometheus_text

SERVERS = os.environ.get("KAFKA", "localhost:9092")
TOPIC = os.environ.get("TOPIC", "orders")
LIMITS = {"max.block.ms": 30_000, "delivery.timeout.ms": 30_000, "request.timeout.ms": 10_000}
counts: Counter[str] = Counter()


async def count(consumer: AsyncConsumer) -> None:
    """Count orders for as long as the service runs; the client commits the counted orders."""
    await consumer.subscribe([TOPIC])
    async for record in consumer:
        counts[(record.key or b"").decode(errors="replace")] += 1  # other programs' orders, too


@asynccontextmanager
async def lifespan(service: FastAPI) -> AsyncIterator[None]:
    """Open the clients with the service and close them with it."""
    producer = AsyncProducer({"bootstrap.servers": SERVERS, "linger.ms": 2, **LIMITS})
    consumer = AsyncConsumer(
        {"bootstrap.servers": SERVERS, "group.id": "board", "auto.offset.reset": "earliest"}
    )
    async with producer, consumer:
        service.state.producer, service.state.consumer = producer, consumer
        service.state.counting = asyncio.create_task(count(consumer))
        yield
        service.state.counting.cancel()


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{customer}", status_code=201)
async def order(customer: str, item: str) -> dict[str, Any]:
    """Send an order; respond when Kafka has acknowledged it."""
    producer: AsyncProducer = app.state.producer
    try:
        written = await producer.send_and_wait(TOPIC, item.encode(), customer.encode())
    except KafkaError as error:
        raise HTTPException(503, str(error)) from error
    return {"partition": written.partition, "offset": written.offset}


@app.get("/orders")
async def orders() -> dict[str, int]:
    """Return the number of orders that the consumer has seen, by customer."""
    return dict(counts)


@app.get("/health")
async def health(response: Response) -> dict[str, Any]:
    """Return whether both clients can do their work: ok, since when, why not, and the remedy."""
    state = app.state
    found = {"producer": state.producer.health(), "consumer": state.consumer.health()}
    if not all(it.ok for it in found.values()):
        response.status_code = 503
    told: dict[str, Any] = {name: it.to_dict() for name, it in found.items()}
    if state.counting.done():  # an error in `count` ends the task, and asyncio doesn't report it
        response.status_code = 503
        told["counting"] = {"ok": False, "why": repr(state.counting.exception())}
    return told


@app.get("/explain")
async def explain() -> dict[str, Any]:
    """Return the clients' state: addresses, failures in a row, when the next attempt is and why."""
    state = app.state
    return {name: getattr(state, name).explain().to_dict() for name in ("producer", "consumer")}


@app.get("/metrics")
async def metrics() -> Response:
    """Return the metrics for Prometheus."""
    text = prometheus_text(app.state.producer, app.state.consumer)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
