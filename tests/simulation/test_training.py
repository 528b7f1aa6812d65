"""How updates of clients are weighed."""

import numpy as np
import pytest

from bsfl.errors import InvalidInput
from bsfl.policies import UniformRandom
from bsfl.simulation import Training, simulate
from bsfl.simulation.training import Absence
from small_clients import HalfWay, lognormal_clients


@pytest.mark.parametrize("weighting", ["samples", "equal"])
def test_the_simulation_weighs_the_clients(weighting):
    training = Training(HalfWay(), seed=0, weighting=weighting)
    policy, clients, model = UniformRandom(), lognormal_clients(), 0.0
    for record in simulate(policy, clients, cohort_size=3, rounds=5, training=training):
        k = np.array(record.cohort)
        weight = (1 + k) if weighting == "samples" else np.ones(3)
        model = (model + (weight * (k + 1)).sum() / weight.sum()) / 2
        assert record.test_loss == pytest.approx(model)
        assert record.train_loss == pytest.approx(k.mean())
    with pytest.raises(InvalidInput, match="weighting must be one of samples, equal, fedau"):
        Training(HalfWay(), seed=0, weighting="loss")


def test_fedau_weighs_by_the_mean_time_between_two_participations():
    absence = Absence(np.array([1, 1, 2]), cutoff=3)
    assert absence.weights([0]) == pytest.approx([0.25 * 1])
    assert absence.weights([0, 1]) == pytest.approx([0.25 * 1, 0.25 * 2])
    # round 3: client 2 was away for 3 rounds, the cutoff; then it comes in round 4, after 1 more
    absence.weights([0])
    assert absence.weights([2]) == pytest.approx([0.5 * (3 + 1) / 2])
