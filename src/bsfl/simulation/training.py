"""The global model as it is trained: updates in, the next model out, evaluated now and then."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bsfl import validation
from bsfl.learning.task import Params, Task, Update, Weighting, shares
from bsfl.rounds import staleness_weight
from bsfl.simulation.in_flight import Responses
from bsfl.types import FloatArray, IntArray

WEIGHTINGS = ("samples", "equal", "fedau")
CUTOFF = 50
"""Rounds after which FedAU stops counting how long a client has been away."""


@dataclass(slots=True)
class Training:
    """The global model as it is trained.

    Attributes:
        task: What is trained.
        seed: Root of the training's randomness, the same for every policy.
        evaluate_every_s: Virtual seconds between two evaluations, the same for slow and for quick
            rounds; 0: after every round. The last round is always evaluated.
        weighting: "samples": the average weighs clients by their data; "equal": all the same;
            "fedau": by their data and by how long each was away (Wang and Ji 2024).
        model: The global model; None before the first round.
        due_s: Virtual time of the next evaluation.
    """

    task: Task
    seed: int
    evaluate_every_s: float = 0.0
    weighting: str = "samples"
    model: Params = None
    due_s: float = 0.0
    _absence: "Absence | None" = field(default=None, repr=False)

    def __post_init__(self) -> None:
        validation.one_of("weighting", self.weighting, WEIGHTINGS)
        if self.weighting == "fedau":
            self._absence = Absence(self.task.samples)

    def start(self) -> Params:
        """Return the global model that clients start from now."""
        if self.model is None:
            self.model = self.task.init(self.seed)
        return self.model

    def train(self, responses: Responses) -> Responses:
        """Train the clients whose responses are usable; add updates, losses and sizes."""
        report = responses.report
        usable, clients = report.usable, report.clients[report.usable]
        updates = tuple(self.task.train(responses.model, clients, t=report.round, seed=self.seed))
        loss, samples = report.loss.copy(), report.samples.copy()
        loss[usable] = [update.loss for update in updates]
        samples[usable] = [update.samples for update in updates]
        return Responses(replace(report, loss=loss, samples=samples), responses.model, updates)

    def apply(
        self, came: Sequence[Responses], weigh: Callable[[IntArray], FloatArray | None]
    ) -> None:
        r"""Move the model by what clients changed: w <- w + sum_k s_k omega_k (w_k - base_k).

        s_k is the weight of an update's staleness. With omega_k = n_k / sum n, and w as the base of
        all clients, that is the average of their models.

        Args:
            came: Trained responses; base_k is the model that they were sent.
            weigh: Returns omega_k, the weights that a policy gives clients; None: by `weighting`.
        """
        model, updates = self.start(), [update for one in came for update in one.updates]
        bases = [one.model for one in came for _ in one.updates]
        clients = [update.client for update in updates]
        weights = weigh(np.array(clients, dtype=np.int64))
        if weights is None and self._absence:
            weights = self._absence.weights(clients)
        if weights is None:
            by: Weighting = "equal" if self.weighting == "equal" else "samples"
            weights = shares([update.samples for update in updates], by)
            if all(base is model for base in bases):
                self.model = self.task.aggregate(model, updates, weights)
                return
        weights = weights * [
            staleness_weight(one.report.staleness) for one in came for _ in one.updates
        ]
        left = {id(model): (model, 1.0)}  # what the models that were sent weigh, in all
        for base, weight in zip(bases, weights.tolist(), strict=True):
            left[id(base)] = base, left.get(id(base), (base, 0.0))[1] - weight
        sent = [Update(client=-1, params=base, loss=0.0, samples=0) for base, _ in left.values()]
        weights = np.concatenate([weights, [weight for _, weight in left.values()]])
        self.model = self.task.aggregate(model, [*updates, *sent], weights)

    def evaluation(self, clock_s: float, *, last: bool) -> dict[str, Any]:
        """Return how good the model is, as fields of a record, if it is time for that."""
        if clock_s < self.due_s and not last:
            return {}
        if step := self.evaluate_every_s:
            self.due_s = (clock_s // step + 1) * step
        test = self.task.evaluate(self.start())
        return {
            "test_loss": math.inf if math.isnan(test.loss) else test.loss,  # it diverged
            "test_accuracy": test.accuracy,
            "worst_label_accuracy": test.worst_label_accuracy,
        }


class Absence:
    r"""How long clients are away between two participations, and what they weigh for it (FedAU).

    An update weighs p_k omega_k with p_k = n_k / sum n and omega_k the mean number of rounds from
    one participation to the next, none counted longer than the cutoff: a client that comes rarely
    weighs more, so that the model moves as if all clients came always.

    >>> absence = Absence(np.array([1, 1]))
    >>> [absence.weights([0]).tolist() for _ in range(3)], absence.weights([1]).tolist()
    ([[0.5], [0.5], [0.5]], [2.0])
    """

    def __init__(self, samples: IntArray, cutoff: int = CUTOFF) -> None:
        self.share, self.cutoff, self.t = samples / samples.sum(), cutoff, 0
        self.since = np.zeros(len(samples), dtype=np.int64)
        self.n_intervals = np.zeros(len(samples), dtype=np.int64)
        self.mean = np.zeros(len(samples))

    def weights(self, clients: Sequence[int]) -> FloatArray:
        """Record a round in which these clients took part, and return what their updates weigh."""
        self.t += 1
        length = self.t - self.since
        ends = length >= self.cutoff
        ends[list(clients)] = True
        self.n_intervals[ends] += 1
        self.mean[ends] += (length[ends] - self.mean[ends]) / self.n_intervals[ends]
        self.since[ends] = self.t
        return np.asarray((self.share * self.mean)[list(clients)])
