"""Rounds as Prometheus metrics; needs the extra `metrics`."""

from typing import Any

from bsfl.extras import optional_module
from bsfl.types import RoundRecord

SECONDS = (0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600, 1800, 3600)
"""Bounds of the histogram of durations."""


class PrometheusMetrics:
    """Counts rounds and responses for Prometheus; pass it as `on_round` of a Scheduler.

    Metrics have no label for clients, of which there may be too many. Outcomes are those known when
    a round closed; a response that comes later stays "pending".

    Args:
        registry: A prometheus_client registry; None: the default one, which
            prometheus_client.start_http_server shows.
        namespace: First word of every metric.
        labels: Names and values that every metric carries, such as {"job": "keyboard"}, where one
            process runs several schedulers.
    """

    def __init__(
        self,
        *,
        registry: Any = None,
        namespace: str = "bsfl",
        labels: dict[str, str] | None = None,
    ) -> None:
        client = optional_module("prometheus_client")
        self._labels = dict(labels or {})
        common: dict[str, Any] = {"namespace": namespace, "labelnames": tuple(self._labels)}
        common["registry"] = client.REGISTRY if registry is None else registry
        outcomes = {**common, "labelnames": (*self._labels, "outcome")}
        self._rounds = client.Counter("rounds", "Rounds that have closed", **common)
        self._responses = client.Counter("responses", "Invitations by their outcome", **outcomes)
        self._duration = client.Histogram(
            "round_seconds", "How long rounds took", buckets=SECONDS, **common
        )
        self._gauges = {
            "round": client.Gauge("round", "Number of the last round", **common),
            "available": client.Gauge("available", "Clients that could be selected", **common),
            "invited": client.Gauge("invited", "Clients that were selected", **common),
            "loss": client.Gauge("train_loss", "Mean loss of the fresh responses", **common),
        }

    def __call__(self, record: RoundRecord) -> None:
        """Count a round that has closed."""
        self._of(self._rounds).inc()
        counts = {
            "ok": record.n_fresh or 0,
            "timeout": record.n_timeouts or 0,
            "failed": record.n_failed or 0,
        }
        counts["pending"] = len(record.cohort) - sum(counts.values())
        for outcome, n in counts.items():
            self._responses.labels(**self._labels, outcome=outcome).inc(max(n, 0))
        if record.duration_s is not None:
            self._of(self._duration).observe(record.duration_s)
        numbers = {
            "round": record.round,
            "available": record.n_available,
            "invited": len(record.cohort),
            "loss": record.train_loss,
        }
        for name, value in numbers.items():
            if value is not None:
                self._of(self._gauges[name]).set(value)

    def _of(self, metric: Any) -> Any:
        return metric.labels(**self._labels) if self._labels else metric
