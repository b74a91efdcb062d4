"""Define what is measured: rows, the clients in each row, and the goals.

In: nothing. Out: `ROWS`. A row is one task; a lane is one client with one way of doing the task; a
goal compares two lanes of a row, or is a limit. Must not: measure anything; drivers do (`peers/`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from benchmarks.stand_in import READ, StandIn

KIB = 1 << 10
TUNED_BATCH = 128 * KIB
FETCH_MAX_BYTES = 50 * KIB * KIB
"""Odradek's budget for buffered and in-flight bytes; memory may grow by 100 MB more."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Properties of a topic; rows with equal properties share one loaded topic."""

    value_size: int = 100
    codec: str = "none"
    partitions: int = 4
    batch_size: int = TUNED_BATCH
    share: float = 1.0
    """Share of the requested records that the topic gets, so that rows of large records don't take
    ten times as long."""

    @property
    def topic(self) -> str:
        """Name of the topic, which contains the shape."""
        return f"v{self.value_size}-{self.codec}-p{self.partitions}-b{self.batch_size}"


@dataclass(frozen=True, slots=True)
class Lane:
    """One client and its way of doing the row's task (a lane of the row)."""

    key: str
    title: str
    client: str
    mode: str
    shape: Shape = Shape()
    share: float = 1.0
    """Share of the topic's records that are used: slow clients get fewer, so that each takes some
    seconds."""
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    tls: bool = False
    """Whether to use the broker's TLS listener and check its certificate."""
    stand_in: StandIn | None = None
    """Size of the simulated cluster to use instead of the real broker."""
    series: str = ""
    """Name of the client in a row that measures growth; the same at all points."""
    at: float = 0.0
    """Position of the point in a row that measures growth."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A limit for one measured value of a client, or for its ratio to another client's value."""

    lane: str
    against: str | None
    limit: float
    figure: str = "speed"
    at_most: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One task that clients are measured with: a table in the results."""

    key: str
    title: str
    lanes: tuple[Lane, ...]
    goals: tuple[Goal, ...] = ()
    quick: bool = False
    """Whether the row is in the subset that takes a few minutes."""
    warm_up: str | None = None
    """Key of the lane that runs once uncounted at first, to warm up the broker and its files."""
    per: str = ""
    """Number and unit that a slope of growth refers to: "1,000 partitions"."""


def _reading(shape: Shape, *, more: tuple[Lane, ...] = ()) -> tuple[Lane, ...]:
    def lane(key: str, title: str, client: str, mode: str, share: float = 1.0, *a: str) -> Lane:
        return Lane(key, title, client, mode, shape, share, a)

    return (
        lane("odradek-arrow", "Odradek → Arrow", "odradek", "arrow"),
        lane("odradek-one", "Odradek → Arrow, one thread", "odradek", "arrow-one"),
        lane("odradek-records", "Odradek → records", "odradek", "consume", 0.5),
        *more,
        lane("raw", "raw receive", "raw", "receive"),
        lane("franz-go", "franz-go", "franz-go", "consume"),
        lane("franz-go-arrow", "franz-go → arrow-go", "franz-go", "arrow"),
        lane("sarama", "Sarama", "sarama", "consume"),
        lane("java", "Java", "java", "consume"),
        lane("librdkafka", "librdkafka (C)", "librdkafka", "consume"),
        lane("librdkafka-crc", "librdkafka (C), check.crcs", "librdkafka", "consume", 1.0,
             "--check-crcs", "true"),
        lane("confluent", "confluent-kafka", "confluent", "consume", 0.4),
        lane("confluent-arrow", "confluent-kafka → Arrow", "confluent", "arrow", 0.2),
        lane("kafkarrow", "kafkarrow → Arrow", "kafkarrow", "arrow", 0.1),
        lane("aiokafka", "aiokafka", "aiokafka", "consume", 0.1),
        lane("aiokafka-arrow", "aiokafka → Arrow", "aiokafka", "arrow", 0.05),
        lane("kafka-python", "kafka-python", "kafka-python", "consume", 0.01),
        lane("kafka-python-arrow", "kafka-python → Arrow", "kafka-python", "arrow", 0.01),
    )  # fmt: skip


def _writing(codec: str) -> tuple[Lane, ...]:
    shape = Shape(codec=codec)

    def lane(key: str, title: str, client: str, mode: str, share: float) -> Lane:
        return Lane(key, title, client, mode, shape, share)

    return (
        lane("odradek-arrow", "Odradek from Arrow", "odradek", "produce-arrow", 1.0),
        lane("odradek-many", "Odradek, send_many() of lists", "odradek", "produce-many", 0.5),
        lane("odradek-send", "Odradek, send() with a future", "odradek", "produce", 0.15),
        lane("raw", "raw ingest", "raw", "ingest", 1.0),
        lane("franz-go", "franz-go", "franz-go", "produce", 0.5),
        lane("sarama", "Sarama", "sarama", "produce", 0.2),
        lane("java", "Java", "java", "produce", 0.3),
        lane("librdkafka", "librdkafka (C)", "librdkafka", "produce", 0.3),
        lane("confluent", "confluent-kafka, callback", "confluent", "produce", 0.15),
        lane("confluent-quiet", "confluent-kafka, no callback", "confluent", "produce-quiet", 0.15),
        lane("aiokafka", "aiokafka", "aiokafka", "produce", 0.015),
        lane("kafka-python", "kafka-python", "kafka-python", "produce", 0.01),
    )


def _reading_goals(*ratios: tuple[str, str, float]) -> tuple[Goal, ...]:
    return tuple(Goal(lane, against, limit) for lane, against, limit in ratios)


_PLAIN, _LZ4 = Shape(), Shape(codec="lz4")
_KIB = Shape(value_size=1024, share=0.2)
_VIEW = Lane("odradek-view", "Odradek → Arrow, binary_view", "odradek", "arrow",
             arguments=("--layout", "binary_view"))  # fmt: skip
ALL_OF_OURS = (
    "odradek.api.producer odradek.api.consumer odradek.clients.consumer.group.wiring "
    "odradek.clients.consumer.group.classic_membership "
    "odradek.runtime.hosts.thread_host odradek.runtime.hosts.one_reader"
)
"""Modules that are loaded when a producer and a group's consumer are created."""
_TWO = "odradek-arrow"
_ONE = "odradek-one"
_CONFLUENT = "confluent-arrow"


_OVER_TLS = (
    _TWO, _ONE, "raw", "franz-go", "franz-go-arrow", "java", "librdkafka", "confluent", _CONFLUENT,
)  # fmt: skip


def _reading_over_tls() -> tuple[Lane, ...]:
    """Return the lanes (clients) with TLS, and one in plaintext to show what TLS costs."""
    lanes = {lane.key: lane for lane in _reading(_PLAIN)}
    ours, one, *others = (replace(lanes[key], tls=True) for key in _OVER_TLS)
    plain = replace(lanes[_TWO], key="odradek-plain", title="Odradek → Arrow, plaintext")
    return (ours, one, plain, *others)


def _everyone(mode: str) -> tuple[Lane, ...]:
    shape = Shape(partitions=1, share=0.0)
    clients = (
        ("odradek", "Odradek"), ("franz-go", "franz-go"), ("sarama", "Sarama"), ("java", "Java"),
        ("confluent", "confluent-kafka"), ("aiokafka", "aiokafka"),
        ("kafka-python", "kafka-python"),
    )  # fmt: skip
    return tuple(Lane(key, title, key, mode, shape) for key, title in clients)


_PAUSES = ",".join(str(130 + 24 * (4 * n % 11)) for n in range(11))
"""Milliseconds of polling before each turn of `seek`.

All are different, in random order, in the middle half of the half second for which a broker delays
a fetch."""


def _moving() -> Row:
    """Return the row that times a consumer's calls while the broker delays its fetch."""
    shape = Shape(partitions=2, share=0.0)
    clients = (
        ("odradek", "Odradek", "odradek", "seek"),
        ("odradek-background", "Odradek, background=True", "odradek", "seek-background"),
        ("odradek-asyncio", "Odradek, asyncio", "odradek-asyncio", "seek"),
        ("franz-go", "franz-go", "franz-go", "seek"),
        ("java", "Java", "java", "seek"),
        ("confluent", "confluent-kafka", "confluent", "seek"),
        ("aiokafka", "aiokafka", "aiokafka", "seek"),
        ("kafka-python", "kafka-python", "kafka-python", "seek"),
    )
    return Row(
        "seek",
        "moving while the broker holds a fetch",
        tuple(
            Lane(key, title, client, mode, shape, arguments=("--pauses", _PAUSES))
            for key, title, client, mode in clients
        ),
        (
            Goal("odradek", "franz-go", 1.0, "seek_ms", at_most=True),  # franz-go abandons fetches
            *(
                Goal("odradek", against, 0.1, figure, at_most=True)
                for figure in ("seek_ms", "end_offsets_ms")
                for against in ("java", "confluent", "aiokafka", "kafka-python")
            ),
        ),
    )


_UVLOOP = ("--loop", "uvloop")
_CALM = (("lag_p99_ms", 5.0), ("lag_max_ms", 20.0))
"""Limits for the event loop's lag while a client reads at full speed."""


def _asyncio() -> tuple[Row, ...]:
    """Return the rows of asyncio clients, compared with other libraries and the sync client."""

    def lane(key: str, title: str, client: str, mode: str, share: float, *a: str) -> Lane:
        return Lane(key, title, client, mode, _PLAIN, share, a)

    def ours(mode: str, share: float) -> tuple[Lane, Lane]:
        return (
            lane("odradek", "Odradek, asyncio", "odradek-asyncio", mode, share),
            lane("odradek-uvloop", "Odradek, uvloop", "odradek-asyncio", mode, share, *_UVLOOP),
        )

    calm = tuple(
        Goal(key, None, limit, figure, at_most=True)
        for key in ("odradek", "odradek-uvloop", "odradek-arrow")
        for figure, limit in _CALM
    )
    return (
        Row(
            "asyncio-consume",
            "asyncio: consume 100 B",
            (
                *ours("consume", 0.5),
                lane("odradek-each", "Odradek, asyncio, async for", "odradek-asyncio", "each", 0.3),
                lane("odradek-ten", "Odradek, ten clients", "odradek-asyncio", "clients", 0.3),
                lane("odradek-arrow", "Odradek → Arrow, asyncio", "odradek-asyncio", "arrow", 1.0),
                lane(_ONE, "Odradek → Arrow, sync, one thread", "odradek", "arrow-one", 1.0),
                lane("aiokafka", "aiokafka", "aiokafka", "consume", 0.1),
                lane("confluent", "AIOConsumer.consume(500)", "confluent-asyncio", "consume", 0.1),
            ),
            (
                *_reading_goals(
                    ("odradek", "aiokafka", 3.5), ("odradek", "confluent", 1.5),
                    ("odradek-arrow", _ONE, 0.85),
                ),
                *calm,
            ),
        ),
        Row(
            "asyncio-produce",
            "asyncio: produce 100 B, a delivery each",
            (
                *ours("produce", 0.15),
                lane("aiokafka", "aiokafka", "aiokafka", "produce", 0.02),
                lane("confluent", "AIOProducer", "confluent-asyncio", "produce", 0.02),
            ),
            _reading_goals(("odradek", "aiokafka", 5), ("odradek", "confluent", 2)),
        ),
        Row(
            "asyncio-callers",
            "asyncio: a thousand callers that send and wait",
            (
                *ours("callers", 0.05),
                lane("aiokafka", "aiokafka", "aiokafka", "callers", 0.02),
            ),
            _reading_goals(("odradek", "aiokafka", 1)),
        ),
        Row(
            "asyncio-round-trip",
            "asyncio: round trip at 100 records a second",
            tuple(
                Lane(key, title, client, "round-trip", Shape(partitions=1, share=0.0), 1.0, more)
                for key, title, client, more in (
                    ("odradek", "Odradek, asyncio", "odradek-asyncio", ()),
                    ("odradek-uvloop", "Odradek, uvloop", "odradek-asyncio", _UVLOOP),
                    ("aiokafka", "aiokafka", "aiokafka", ()),
                )
            ),
            (Goal("odradek", "aiokafka", 1.0, "p50_ms", at_most=True),),
        ),
    )  # fmt: skip


def _compat() -> tuple[Row, ...]:
    """Return the rows of one program with another library, and with our module in its place."""

    def row(mode: str, library: str, title: str, share: float, theirs: float, limit: float) -> Row:
        client = library.partition("-")[0]
        return Row(
            f"compat-{client}-{mode}",
            f"{title}, by {library} and by our module in its place",
            (
                Lane("compat", "odradek.compat", f"compat-{client}", mode, _PLAIN, share),
                Lane("theirs", library, client, mode, _PLAIN, theirs),
            ),
            (Goal("compat", "theirs", limit),),
        )

    return (
        row("consume", "aiokafka", "getmany() 100 B", 0.2, 0.1, 2.0),
        row("each", "aiokafka", "async for 100 B", 0.2, 0.1, 2.0),
        row("produce", "aiokafka", "send() 100 B, a future each", 0.06, 0.02, 2.0),
        row("consume-500", "confluent-kafka", "consume(500) 100 B", 0.3, 0.3, 1.0),
        row("poll", "confluent-kafka", "poll() 100 B", 0.2, 0.2, 1.0),
        row("produce", "confluent-kafka", "produce() 100 B, a callback each", 0.15, 0.15, 1.0),
    )


_CURVE_CLIENTS = (
    ("odradek", "Odradek", "arrow"), ("franz-go", "franz-go", "consume"),
    ("librdkafka", "librdkafka (C)", "consume"),
)  # fmt: skip
_SIZES = {
    10: 2_000_000, 100: 1_000_000, 1000: 200_000, 10_000: 20_000, 100_000: 2000, 1_000_000: 200,
}  # fmt: skip
"""Number of records per partition, by the size of a value in bytes."""


def _scale() -> Iterator[Row]:
    """Yield the rows of idle clients that have read all records, and of large records."""
    everyone = tuple((client, name, "idle") for client, name, _ in _CURVE_CLIENTS)
    in_a_process = (
        *everyone[:1],
        ("odradek", "Odradek, background=False", "idle-one"),
        ("odradek-asyncio", "Odradek, asyncio", "idle"),
        *everyone[1:],
    )

    def lanes(
        points: dict[int, StandIn], clients: tuple[tuple[str, str, str], ...], *more: str
    ) -> tuple[Lane, ...]:
        return tuple(
            Lane(
                f"{client}-{mode}-{n}", f"{name}, {n:,}", client, mode, Shape(share=0.0),
                arguments=tuple(x.format(n=n) for x in more), stand_in=at, series=name, at=n,
            )
            for n, at in points.items()
            for client, name, mode in clients
        )  # fmt: skip

    partitions = {n: StandIn(partitions=n) for n in (1, 100, 1000, 10_000, 50_000)}
    yield Row(
        "scale-partitions", "partitions of one consumer",
        lanes(partitions, everyone, "--settle", "4"), per="1,000 partitions",
    )  # fmt: skip
    brokers = {n: StandIn(brokers=n, partitions=200) for n in (1, 3, 10, 30, 100)}
    yield Row("scale-brokers", "brokers of a cluster", lanes(brokers, everyone), per="1 broker")
    clients = {n: StandIn() for n in (1, 10, 100, 300, 1000)}
    yield Row(
        "scale-clients", "clients in a process", lanes(clients, in_a_process, "--clients", "{n}"),
        per="1 client",
    )  # fmt: skip
    topics = {n: StandIn(topics=n) for n in (1, 100, 1000, 10_000, 100_000)}
    yield Row(
        "scale-topics", "topics in the cluster, one of them read", lanes(topics, everyone),
        per="1,000 topics",
    )  # fmt: skip
    yield Row(
        "scale-pattern", "topics in the cluster, those read chosen by a pattern",
        lanes(topics, everyone, "--pattern", f"^{READ}$"), per="1,000 topics",
    )  # fmt: skip
    sizes = {n: StandIn(value_size=n, records=count) for n, count in _SIZES.items()}
    yield Row(
        "scale-sizes", "reading values of many sizes", lanes(sizes, _CURVE_CLIENTS),
        per="1,000 bytes",
    )  # fmt: skip


def _growth() -> Iterator[Row]:
    """Yield the rows that show how cost grows with partitions, codecs and batches."""

    def lanes(shapes: dict[str, Shape], *, writing: bool = False) -> tuple[Lane, ...]:
        ours, theirs = ("produce-arrow", "produce") if writing else ("arrow", "consume")
        return tuple(
            Lane(f"{client}-{name}", f"{title}, {name}", client, mode, shape)
            for name, shape in shapes.items()
            for client, title, mode in (
                ("odradek", "Odradek", ours),
                ("franz-go", "franz-go", theirs),
            )
        )

    part = replace(_PLAIN, share=0.2)
    some = {n: replace(part, partitions=n) for n in (1, 4, 100, 1000, 5000)}
    yield Row(
        "partitions",
        "consume 100 B from many partitions",
        tuple(
            Lane(f"{client}-{n:,} partitions", f"{name}, {n:,}", client, mode, shape,
                 series=name, at=n)
            for n, shape in some.items()
            for client, name, mode in _CURVE_CLIENTS
        ),
        per="1,000 partitions",
    )  # fmt: skip
    yield from _scale()
    sizes = {f"{n} KiB": replace(part, batch_size=n * KIB) for n in (1, 4, 16, 128, 1000)}
    yield Row("batches", "consume 100 B in batches of different sizes", lanes(sizes))
    codecs = {c: replace(part, codec=c) for c in ("none", "lz4", "snappy", "zstd", "gzip")}
    yield Row("codecs", "consume 100 B, codecs", lanes(codecs))
    yield Row("codecs-produce", "produce 100 B, codecs", lanes(codecs, writing=True))


ROWS: dict[str, Row] = {
    row.key: row
    for row in (
        Row(
            "consume",
            "consume 100 B",
            _reading(_PLAIN, more=(_VIEW,)),
            (
                *_reading_goals(
                    (_TWO, _CONFLUENT, 40), (_TWO, "java", 9), (_TWO, "franz-go", 5),
                    (_TWO, "raw", 0.6),
                ),
                Goal(_TWO, None, 0.10, "cpu_per_million", at_most=True),
                *_reading_goals(
                    (_ONE, _CONFLUENT, 25), (_ONE, "java", 6), (_ONE, "franz-go", 4),
                    ("odradek-records", "confluent", 4),
                ),
                Goal(_TWO, None, FETCH_MAX_BYTES + 100e6, "rss_growth", at_most=True),
            ),
            quick=True,
            warm_up="raw",
        ),
        Row(
            "consume-lz4",
            "consume 100 B, lz4",
            _reading(_LZ4),
            _reading_goals((_TWO, _CONFLUENT, 18), (_TWO, "java", 4.5), (_TWO, "franz-go", 2.5)),
            warm_up="raw",
        ),
        Row(
            "consume-1k",
            "consume 1 KiB",
            _reading(_KIB, more=(replace(_VIEW, shape=_KIB),)),
            _reading_goals((_TWO, _CONFLUENT, 7), (_TWO, "java", 5), (_TWO, "franz-go", 2)),
            warm_up="raw",
        ),
        Row(
            "consume-tls",
            "consume 100 B, TLS",
            _reading_over_tls(),
            _reading_goals((_TWO, _CONFLUENT, 3)),
            warm_up="raw",
        ),
        Row(
            "produce",
            "produce 100 B",
            _writing("none"),
            (
                *_reading_goals(
                    (_TWO, "confluent", 12), (_TWO, "java", 5), (_TWO, "franz-go", 2.2),
                    (_TWO, "raw", 0.95),
                ),
                Goal(_TWO, None, 0.15, "cpu_per_million", at_most=True),
                *_reading_goals(
                    ("odradek-send", "confluent", 2.5), ("odradek-send", "franz-go", 0.6),
                ),
            ),
            quick=True,
            warm_up="raw",
        ),
        Row(
            "produce-lz4",
            "produce 100 B, lz4",
            _writing("lz4"),
            _reading_goals((_TWO, "confluent", 7), (_TWO, "java", 3.5), (_TWO, "franz-go", 2.3)),
            warm_up="raw",
        ),
        Row(
            "round-trip",
            "round trip at 100 records a second",
            _everyone("round-trip"),
            tuple(
                Goal("odradek", against, 1.0, figure, at_most=True)
                for figure in ("p50_ms", "p99_ms")
                for against in ("confluent", "java")
            ),
            quick=True,
            warm_up="java",
        ),
        *_asyncio(),
        *_compat(),
        Row(
            "start",
            "client start: to the first record",
            _everyone("start"),
            tuple(
                Goal("odradek", against, 1.0, figure, at_most=True)
                for figure in (
                    "first_read_ms",
                    "first_in_classic_group_ms",
                    "first_in_consumer_group_ms",
                )
                for against in ("confluent", "java")
            ),
            quick=True,
            warm_up="java",
        ),
        _moving(),
        Row(
            "metadata",
            "a metadata answer of 10,000 topics with 50 partitions each",
            (
                Lane("odradek", "Odradek", "odradek", "metadata"),
                Lane("java", "Java", "java", "metadata"),
                Lane("kafka-python", "kafka-python", "kafka-python", "metadata"),
            ),
            (
                *(
                    Goal("odradek", against, limit, figure, at_most=True)
                    for figure in ("first_answer_ms", "answer_ms", "answer_cpu_ms")
                    for against, limit in (("kafka-python", 0.25), ("java", 1.0))
                ),
                Goal("odradek", None, 50.0, "step_cpu_ms", at_most=True),
                Goal("odradek", None, 100e6, "rss_growth", at_most=True),
            ),
        ),
        Row(
            "import",
            "import of the module",
            tuple(
                Lane(key, title, client, "import", arguments=tuple(modules.split()))
                for key, title, client, modules in (
                    ("odradek", "Odradek: import odradek", "odradek", "odradek"),
                    ("odradek-all", "Odradek: all that its clients load", "odradek", ALL_OF_OURS),
                    ("confluent", "confluent-kafka", "confluent", "confluent_kafka"),
                    ("aiokafka", "aiokafka", "aiokafka", "aiokafka"),
                    ("kafka-python", "kafka-python", "kafka-python", "kafka"),
                )
            ),
            (Goal("odradek", None, 80.0, "import_ms", at_most=True),),
            quick=True,
        ),
        Row(
            "soak",
            "ten passes over the topic: does memory stay level",
            (Lane("odradek", "Odradek → Arrow", "odradek", "soak", arguments=("--passes", "10")),),
            (Goal("odradek", None, 20e6, "rss_drift", at_most=True),),
        ),
        *_growth(),
    )
}  # fmt: skip
