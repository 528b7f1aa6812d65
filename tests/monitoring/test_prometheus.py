"""Rounds as Prometheus metrics."""

import sys

import pytest

from bsfl import Observation, Scheduler, UniformRandom
from bsfl.errors import MissingExtra
from bsfl.monitoring.prometheus import PrometheusMetrics


def test_rounds_and_responses_are_counted():
    prometheus = pytest.importorskip("prometheus_client")
    registry = prometheus.CollectorRegistry()
    metrics = PrometheusMetrics(registry=registry, labels={"job": "a"})
    scheduler = Scheduler(UniformRandom(), cohort_size=4, on_round=metrics)
    for _ in range(3):
        a, b, c, _ = scheduler.select(range(9))
        scheduler.observe(
            {
                a: Observation(latency_s=2.0, loss=0.5),
                b: Observation(latency_s=20.0, outcome="timeout"),
                c: Observation(outcome="failed"),
            }
        )
        scheduler.abandon()
    scheduler.select(range(9))

    def value(name, **labels):
        return registry.get_sample_value(name, {"job": "a", **labels})

    assert value("bsfl_rounds_total") == 3
    for outcome in ("ok", "timeout", "failed", "pending"):
        assert value("bsfl_responses_total", outcome=outcome) == 3
    assert value("bsfl_round_seconds_sum") == 60.0
    assert value("bsfl_round_seconds_bucket", le="30.0") == 3
    assert value("bsfl_train_loss") == 0.5
    assert (value("bsfl_round"), value("bsfl_available"), value("bsfl_invited")) == (3, 9, 4)


def test_without_it_the_error_has_the_pip_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingExtra, match=r"\[metrics\]"):
        PrometheusMetrics()
