"""How updates of clients are weighed."""

import numpy as np
import pytest

from bsfl.errors import InvalidInput
from bsfl.learning import Evaluation, Update
from bsfl.policies import UniformRandom
from bsfl.simulation import Training, simulate
from bsfl.simulation.training import Absence
from small_clients import lognormal_clients


class Constant:
    """A task whose client k always returns the number k, trained on 1 + k samples."""

    n_clients, samples = 12, np.arange(1, 13)

    def init(self, seed):
        return 0.0

    def train(self, params, clients, *, t, seed):
        return [
            Update(client=k, params=float(k), loss=0.1 * k, samples=1 + k) for k in clients.tolist()
        ]

    def aggregate(self, params, updates, weights):
        return sum(w * u.params for w, u in zip(weights, updates, strict=True)) or params

    def evaluate(self, params):
        return Evaluation(loss=params)


@pytest.mark.parametrize("weighting", ["samples", "equal"])
def test_the_simulation_weighs_the_clients(weighting):
    training = Training(Constant(), seed=0, weighting=weighting)
    policy, clients = UniformRandom(), lognormal_clients()
    for record in simulate(policy, clients, cohort_size=3, rounds=5, training=training):
        k = np.array(record.cohort)
        weight = (1 + k) if weighting == "samples" else np.ones(3)
        assert record.test_loss == pytest.approx((weight * k).sum() / weight.sum())
        assert record.train_loss == pytest.approx(0.1 * k.mean())
    with pytest.raises(InvalidInput, match="weighting must be one of samples, equal, fedau"):
        Training(Constant(), seed=0, weighting="loss")


def test_fedau_weighs_by_the_mean_time_between_two_participations():
    absence = Absence(np.array([1, 1, 2]), cutoff=3)
    assert absence.weights([0]) == pytest.approx([0.25 * 1])
    assert absence.weights([0, 1]) == pytest.approx([0.25 * 1, 0.25 * 2])
    # round 3: client 2 was away for 3 rounds, the cutoff; then it comes in round 5, after 2 more
    absence.weights([0])
    absence.weights([0])
    assert absence.weights([2]) == pytest.approx([0.5 * (3 + 2) / 2])
