"""What the scheduler learns of a reply: how long the client took, its loss and its samples."""

import math

import pytest
from fake_federation import Spy, train
from fake_grid import fleet

from bsfl import BSFL, UniformRandom

NAN, INF = math.nan, math.inf


def claiming(takes, metrics):
    """Return nodes that report these metrics, each of them its own value."""
    nodes = fleet(*takes)
    for name, values in metrics.items():
        for node, value in zip(nodes.values(), values, strict=True):
            node.metrics[name] = value
    return nodes


def test_reported_durations_are_bounded():
    """The fastest round trip ever seen bounds from below, each one's own from above."""
    takes = [2.0, 2.5, 4.0, 4.5, 6.0, 6.5, 8.0, 8.5, 9.0]
    claims = [1.5, 2.2, 3.0, -3.0, 1e-9, 0.0, 1e300, INF, NAN]
    nodes = claiming(takes, {"duration-s": claims})
    run = train(nodes, cohort_size=9, latency="reported")
    latencies = [run.rounds[0].latencies[str(k)] for k in range(9)]
    expected = [2.0, 2.2, 3.0, 2.0, 2.0, 2.0, 8.0, 8.5, 9.0]
    assert latencies == pytest.approx(expected, rel=0.03)


def test_clipping_a_report_to_the_round_trip_is_logged_once(caplog):
    train(claiming([2.0, 2.0], {"duration-s": [1.9, 3.1]}), rounds=3, latency="reported")
    assert "of work" not in caplog.text, "as exact as a report can be"
    train(claiming([0.5, 0.6], {"duration-s": [43.5, 43.5]}), rounds=3, latency="reported")
    assert caplog.text.count("reports 43.5 s of work") == 1
    assert "use latency=simulated('duration-s')" in caplog.text


def test_a_client_for_which_the_latency_function_fails_has_failed():
    seconds = {"0": 100.0, "1": -1.0, "2": None}
    run = train(fleet(1, 1, 1, 1), cohort_size=4, latency=lambda client, *_: seconds[client])
    (only,) = run.rounds
    assert (only.latencies, sorted(only.failed)) == ({"0": 100.0}, ["1", "2", "3"])
    for client, reason in {"1": "latency must be", "2": "latency must be", "3": "KeyErr"}.items():
        text = f"your latency function, for client '{client}': {reason}"
        assert only.reasons[client].startswith(text)


@pytest.mark.parametrize("policy", [UniformRandom(), BSFL(generalization="loss")])
def test_losses_and_samples_reach_the_policy_unless_they_are_impossible(policy):
    """Without a loss a client has failed if the policy needs one; else its model is as good."""
    losses = [0.5, 0.25, NAN, INF, -INF, 1e300, -1e300]
    scheduler = Spy(policy, cohort_size=7)
    nodes = claiming([1.0] * 7, {"train_loss": losses, "num-examples": range(10, 80, 10)})
    (only,) = train(nodes, scheduler=scheduler, loss_key="train_loss").rounds
    learned = {
        client: (loss, samples)
        for entry in scheduler.journal.of_kind("responses")
        for client, loss, samples in zip(
            entry["clients"], entry["loss"], entry["samples"], strict=True
        )
        if loss is not None
    }
    assert learned == {"0": (0.5, 10.0), "1": (0.25, 20.0)}
    if policy == UniformRandom():
        assert len(only.kept) == 7
    else:
        assert sorted(only.failed) == ["2", "3", "4", "5", "6"]
        assert "its train_loss is not a number from 0" in only.reasons["2"]
