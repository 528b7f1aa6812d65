"""What the advisor predicts from a log is what happens on the fleet that wrote it."""

from pathlib import Path

import numpy as np
import pytest

from bsfl.random import stream
from bsfl.simulation import SimulatedClients
from bsfl.simulation.latency import Flaky
from bsfl.simulation.populations import POPULATIONS
from bsfl.studies.advice import read_log
from bsfl.studies.advice.trials import ResampledFleets, Setting, run_setting

DEVICES = Path(__file__).parents[4] / "shared" / "devices" / "fedscale_capacity_20k.csv"
K, M, ROUNDS = 100, 10, 300
DEADLINES = {"phones": 120.0, "authors-bimodal": 1.0, "flaky": 60.0, "trace": 200.0}


def fleet(name, seed):
    rng = np.random.default_rng(5)
    if name == "flaky":
        lost = np.where(rng.random(K) < 0.2, 0.4, 0.03)
        lost[:2] = 1.0
        latency = Flaky(POPULATIONS["lognormal"](K, rng, sigma=0.3), lost)
    else:
        settings = {"path": str(DEVICES)} if name == "trace" else {}
        latency = POPULATIONS[name](K, rng, **settings)
    return SimulatedClients(latency=latency, tau_min=1e-3, tau_max=DEADLINES[name], seed=seed)


def written(name, path):
    """Write a log of 60 rounds of random selection, six responses of a client."""
    truth, lines = fleet(name, 77), ["client,latency,status"]
    for t in range(1, 61):
        drawn = truth.latencies(t, 0.0)
        for k in stream(9, "log", t).choice(K, M, replace=False):
            how = "ok" if drawn[k] <= truth.tau_max else "timeout"
            lines.append(f"c{k},{min(drawn[k], truth.tau_max):.6g},{how}")
    path.write_text("\n".join(lines) + "\n")
    return path


def mean_round_s(setting, fleets):
    return np.mean([run_setting(one, setting, ROUNDS)["mean_round_s"] for one in fleets])


devices = pytest.param(
    "trace", marks=pytest.mark.skipif(not DEVICES.exists(), reason="the devices are not here")
)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["phones", "authors-bimodal", "flaky", devices])
def test_the_predicted_mean_round_is_the_true_one_within_a_tenth(name, tmp_path):
    log = read_log(written(name, tmp_path / "log.csv"))
    resampled = ResampledFleets.of(log)
    for policy, options, invite in (
        ("random", {}, 1.0),
        ("pace", {"min_participation": 0.8}, 1.0),
        ("bsfl", {"alpha": 10.0, "index": {"kind": "lognormal"}}, 1.3),
    ):
        plan = {"cohort_size": M, "over_selection": invite, "deadline_s": log.deadline_s}
        setting = Setting(policy=policy, options=options, **plan)
        predicted = mean_round_s(setting, [resampled.fleet(i) for i in range(3)])
        true = mean_round_s(setting, [fleet(name, 1000 + i) for i in range(2)])
        assert predicted == pytest.approx(true, rel=0.1), policy
