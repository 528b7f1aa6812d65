"""Histories of the Flower integration, on the grid without processes of its own tests."""

import itertools
import logging
import os
import random
import tempfile
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
from fake_federation import ARRAYS
from fake_grid import GONE, RAISED, FakeGrid, FakeNode
from flwr.app import Message, RecordDict
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity

from bsfl import Scheduler
from bsfl.integrations.flower import Buffered, Selected, rounds
from bsfl.policies import make_policy
from fake_clock import FakeClock

N_ROUNDS = 15
PACE, RANDOM, BSFL = ("pace", {}), ("random", {}), ("bsfl", {"alpha": 3.0})
OORT = ("oort", {"tau_max": 20.0})

# --- the cases ------------------------------------------------------------------------------------


def nodes_of(n, seed, **changed):
    """Return nodes 101, 102, ... that take between 1 s and 9 s, ten draws each, again and again.

    Args:
        n: How many.
        seed: Of their times.
        changed: By "_<number of the node>" the attributes that differ.
    """
    nodes = {}
    for k in range(n):
        rng = np.random.default_rng([4711, seed, k])
        base = 1.0 + 6.0 * float(rng.random())
        takes = [base * (0.7 + 0.6 * float(rng.random())) for _ in range(10)]
        attributes = {"takes": itertools.cycle(takes)} | changed.get(f"_{101 + k}", {})
        metrics = {"train_loss": 0.25 + 0.125 * (k % 7), "num-examples": 10 + 3 * k}
        nodes[101 + k] = FakeNode(name=str(k), metrics=metrics, **attributes)
    return nodes


SILENT, FAILS, GOES = {"takes": None}, {"fails": RAISED}, {"fails": GONE}


def sometimes_silent():
    return {"takes": itertools.cycle([2.0, None, 3.0, None, None])}


def long():
    return {"takes": itertools.cycle([18.0, 14.5, 25.0])}


AWAY = {
    "churn/pace": {
        101: (0.0, 20.0),
        104: (10.0, 45.0),
        107: (15.0, 35.0),
        110: (30.0, 1e9),
        112: (0.0, 40.0),
    },
    "buffered/bsfl": {105: (10.0, 40.0)},
}
"""By case and node, the seconds [from, until) since the start in which it is not connected."""


def _cases():
    """Return by name what makes a case: nodes, policy, cohort size, options."""
    invite_1_3 = {"over_selection": 1.3, "deadline_s": 10.0}
    flaky = {"_104": sometimes_silent(), "_108": long(), "_111": SILENT}
    late = {"_104": SILENT, "_109": long()}
    return {
        "fedavg/random": (nodes_of(10, 1), RANDOM, 3, {}),
        "fedavg/pace": (nodes_of(10, 1), PACE, 3, {}),
        "fedavg/bsfl": (nodes_of(10, 1), BSFL, 3, {}),
        "fedavg/oort": (nodes_of(10, 1), OORT, 3, {"loss_key": "train_loss"}),
        "invite-1.3/pace": (nodes_of(14, 2, _105=long()), PACE, 4, invite_1_3),
        "invite-1.3/bsfl": (nodes_of(14, 2, _105=long()), BSFL, 4, invite_1_3),
        "invite-auto/pace": (
            *(nodes_of(14, 3, **flaky), PACE, 4),
            {"over_selection": "auto", "deadline_s": 10.0},
        ),
        "failing/pace": (nodes_of(8, 4, _102=FAILS, _105=GOES), PACE, 3, {"deadline_s": 12.0}),
        "silent/bsfl": (
            *(nodes_of(8, 5, _103=SILENT, _106=long()), BSFL, 4),
            {"deadline_s": 10.0, "min_responses": 3, "lifetime_s": 25.0},
        ),
        "churn/pace": (
            *(nodes_of(12, 6), PACE, 4),
            {"deadline_s": 10.0, "leave_after_s": 15.0, "over_selection": 1.3},
        ),
        "evaluation/pace": (
            *(nodes_of(8, 7, _103={"evaluates": 15.0}, _107=long()), PACE, 3),
            {"deadline_s": 10.0, "evaluate_deadline_s": 4.0},
        ),
        "buffered/pace": (
            *(nodes_of(12, 8, **late), PACE, 4),
            {"concurrency": 4, "buffer": 2, "deadline_s": 15.0},
        ),
        "buffered/bsfl": (nodes_of(12, 9, _102=FAILS), BSFL, 5, {"deadline_s": 15.0}),
        "loop/pace": (
            *(nodes_of(10, 10, _106=SILENT), PACE, 4),
            {"deadline_s": 8.0, "over_selection": 1.5},
        ),
    }


CASES = tuple(_cases())


def compute(case):
    """Return the summaries of all rounds, the model, and who was messaged when."""
    nodes, (policy, settings), cohort_size, options = _cases()[case]
    grid = NotingGrid(nodes, AWAY.get(case, {}))
    scheduler = Scheduler(make_policy(policy, **settings), cohort_size=cohort_size, seed=0)
    with quiet_flower():
        if case.startswith("loop"):
            found = run_loop(grid, scheduler, options)
        else:
            strategy = FedAvg() if case.startswith("evaluation") else FedAvg(fraction_evaluate=0.0)
            is_buffered = case.startswith("buffered")
            server = (Buffered if is_buffered else Selected)(strategy, scheduler, **options)
            server._clock = grid.clock
            result = server.start(grid, ARRAYS, 2 * N_ROUNDS if is_buffered else N_ROUNDS)
            metrics = result.evaluate_metrics_clientapp
            found = {
                "rounds": [shown(one) for one in server.rounds],
                "model": result.arrays["w"].numpy().tolist(),
                "evaluated": {str(t): float(one["accuracy"]) for t, one in metrics.items()},
            }
    return found | {"messages": grid.messages}


def run_loop(grid, scheduler, options):
    """Run a custom loop; what came back is stored, too."""
    summaries, replied = [], []
    for cohort in rounds(grid, scheduler, n_rounds=N_ROUNDS, clock=grid.clock, **options):
        messages = [
            Message(RecordDict({"arrays": ARRAYS}), node, "train") for node in sorted(cohort.nodes)
        ]
        replies = cohort.send_and_receive(messages)
        replied.append([reply.metadata.src_node_id for reply in replies if reply.has_content()])
        summaries.append(shown(cohort.summary))
    return {"rounds": summaries, "replied": replied}


FIELDS = ("server_round", "cohort", "kept", "timeouts", "failed", "latencies", "duration_s")
FIELDS += ("n_late", "n_seen", "staleness", "n_busy")


def shown(summary):
    """Return what is stored of the summary of a round, or of a version."""
    found = {name: getattr(summary, name) for name in FIELDS if hasattr(summary, name)}
    return found | {"t": summary.round, "n_fleet": summary.n_clients}


class NotingGrid(FakeGrid):
    """A grid that notes who is messaged when, and whose nodes may come and go.

    Replies come in the order of their arrival, whatever order they are asked for in: Flower's
    strategies write messages in an order drawn from Python's global generator.

    Attributes:
        messages: [seconds since the start, type, nodes] of what was sent at one moment.
    """

    def __init__(self, nodes, away):
        super().__init__(nodes, FakeClock())
        self.away, self.started_at = away, self.clock.now
        self.messages, self.node_of = [], {}

    def get_node_ids(self):
        now = self.clock.now - self.started_at
        gone = {node for node, (since, until) in self.away.items() if since <= now < until}
        return sorted(self.online - gone)

    def push_messages(self, messages):
        messages, now = list(messages), self.clock.now - self.started_at
        for one in messages:
            kind, node = one.metadata.message_type, one.metadata.dst_node_id
            if not self.messages or self.messages[-1][:2] != [now, kind]:
                self.messages.append([now, kind, []])
            self.messages[-1][2] = sorted([*self.messages[-1][2], node])
        pushed = super().push_messages(messages)
        self.node_of |= {m.metadata.message_id: m.metadata.dst_node_id for m in messages}
        return pushed

    def pull_messages(self, message_ids):
        def arrival(message_id):
            return self.on_the_way[message_id][0], self.node_of[message_id]

        return super().pull_messages(sorted(message_ids, key=arrival))


@contextmanager
def quiet_flower():
    """Let messages be written without a server, by seeded strategies; nothing is logged."""
    log, state = logging.getLogger("flwr"), random.getstate()
    level = log.level
    environment = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    identity = {"_task_id": 1, "_run_id": 1, "_node_id": 1}
    with tempfile.TemporaryDirectory() as home:
        environment["FLWR_HOME"] = home
        with patch.dict(os.environ, environment), patch.multiple(TaskIdentity, **identity):
            log.setLevel(logging.CRITICAL)
            random.seed(4711)
            try:
                yield
            finally:
                random.setstate(state)
                log.setLevel(level)
