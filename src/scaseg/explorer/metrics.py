"""What Prometheus reads of a server: requests, their time, batches, what waits, the process."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
BATCHES = (1, 2, 4, 8, 16, 32)


class Metrics:
    """The counters of one server. Routes are those of the API, never what a client typed."""

    media_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._requests = Counter(
            "scaseg_requests",
            "Answers, by route and status",
            ("route", "status"),
            registry=registry,
        )
        self._seconds = Histogram(
            "scaseg_request_seconds",
            "From a request's head to its answer",
            ("route",),
            registry=registry,
            buckets=SECONDS,
        )
        self._batches = Histogram(
            "scaseg_batch_size", "Images computed at once", registry=registry, buckets=BATCHES
        )

    def watch(self, **values: Callable[[], float]) -> None:
        """Show these whenever the metrics are read: pending requests, bytes of pictures."""
        texts = {"pending": "Requests that wait for the networks", "pictures": "Bytes of pictures"}
        for name, value in values.items():
            unit = "_bytes" if name == "pictures" else ""
            gauge = Gauge(f"scaseg_{name}{unit}", texts[name], registry=self._registry)
            gauge.set_function(value)

    def count(self, route: str, status: int, seconds: float) -> None:
        """Count an answer."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def count_batch(self, size: int) -> None:
        """Count a batch."""
        self._batches.observe(size)

    def text(self) -> bytes:
        """All of it, in Prometheus' text format."""
        return generate_latest(self._registry)
