"""What the scheduler learns of a reply: how long the client took, its loss and its samples."""

import math
import re

import pytest
from fake_federation import Spy, train
from fake_grid import fleet

from bsfl import BSFL, Oort, UniformRandom

NAN, INF = math.nan, math.inf


def claiming(takes, **claims):
    """Return nodes that report these metrics, each of them its own value."""
    nodes = fleet(*takes)
    for name, values in claims.items():
        for node, value in zip(nodes.values(), values, strict=True):
            node.metrics[name.replace("duration_s", "duration-s")] = value
    return nodes


def test_reported_durations_are_bounded():
    """The fastest round trip ever seen bounds from below, each one's own from above."""
    takes = [2.0, 2.5, 4.0, 4.5, 6.0, 6.5, 8.0, 8.5, 9.0]
    claims = [1.5, 2.2, 3.0, -3.0, 1e-9, 0.0, 1e300, INF, NAN]
    nodes = claiming(takes, duration_s=claims)
    run = train(nodes, cohort_size=9, latency="reported")
    latencies = [run.rounds[0].latencies[str(k)] for k in range(9)]
    expected = [2.0, 2.2, 3.0, 2.0, 2.0, 2.0, 8.0, 8.5, 9.0]
    assert latencies == pytest.approx(expected, rel=0.03)


def test_clipping_a_report_to_the_round_trip_is_logged_once(caplog):
    train(claiming([2.0, 2.0], duration_s=[1.9, 3.1]), rounds=3, latency="reported")
    assert "of work" not in caplog.text, "as exact as a report can be"
    train(claiming([0.5, 0.6], duration_s=[43.5, 43.5]), rounds=3, latency="reported")
    assert caplog.text.count("reports 43.5 s of work") == 1
    assert "use latency=simulated('duration-s')" in caplog.text


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda client: -1.0 if client == "1" else 100.0, "latency must be .* above 0"),
        (lambda client: 100.0 / (client != "1"), "ZeroDivisionError"),
        (lambda client: None if client == "1" else 100.0, "latency must be .* got None"),
    ],
)
def test_a_client_for_which_the_latency_function_fails_has_failed(function, reason):
    run = train(fleet(1.0, 1.0), latency=lambda client, reply, seconds: function(client))
    (only,) = run.rounds
    assert (only.latencies, only.failed) == ({"0": 100.0}, ("1",))
    assert re.search(f"your latency function, for client '1': {reason}", only.reasons["1"])


def test_losses_and_samples_reach_the_policy():
    scheduler = Spy(BSFL(generalization="loss"), cohort_size=2)
    train(fleet(1.0, 1.0), scheduler=scheduler, loss_key="train_loss")
    (entry,) = scheduler.journal.of_kind("responses")
    assert (entry["loss"], entry["samples"]) == ([0.5, 0.5], [10.0, 10.0])


IMPOSSIBLE = [NAN, INF, -INF, 1e300, -1e300]


def test_an_impossible_loss_is_not_learned_from():
    """The policy does not need losses: the model is as good as any."""
    scheduler = Spy(UniformRandom(), cohort_size=6)
    nodes = claiming([1.0] * 6, train_loss=[0.5, *IMPOSSIBLE])
    run = train(nodes, scheduler=scheduler, loss_key="train_loss")
    assert run.rounds[0].failed == ()
    (entry,) = scheduler.journal.of_kind("responses")
    assert sorted(entry["loss"], key=str) == [0.5, *[None] * 5]


@pytest.mark.parametrize("policy", [BSFL(generalization="loss"), Oort()], ids=["bsfl", "oort"])
def test_an_impossible_loss_is_a_failure_if_the_policy_needs_losses(policy):
    nodes = fleet(*[1.0] * 10)
    for node, loss in zip(list(nodes.values())[2:], [*IMPOSSIBLE, -1.0, [1.0], None], strict=True):
        node.spoils = reporting(loss)
    scheduler = Spy(policy, cohort_size=10)
    run = train(nodes, rounds=2, scheduler=scheduler, loss_key="train_loss")
    for played in run.rounds:
        assert (sorted(played.kept), len(played.failed)) == (["0", "1"], 8)
    assert "its train_loss is not a number from 0" in run.rounds[0].reasons["2"]


def reporting(loss):
    """Return a function that replaces the loss of a reply; None removes it."""

    def spoil(reply):
        record = reply.content["metrics"]
        del record["train_loss"]
        if loss is not None:
            record["train_loss"] = loss

    return spoil
