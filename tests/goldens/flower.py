"""Histories of the Flower integration, on the grid without processes of its own tests."""

import itertools
import logging
import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
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

# --- the adapter: everything that depends on the API ----------------------------------------------


def make_scheduler(policy: str, settings: dict[str, Any], cohort_size: int) -> Scheduler:
    return Scheduler(make_policy(policy, **settings), cohort_size=cohort_size, seed=0)


def run_selected(
    grid: FakeGrid, scheduler: Scheduler, strategy: Any, n_rounds: int, options: dict[str, Any]
) -> dict[str, Any]:
    selected = Selected(strategy, scheduler, **options)
    selected._clock = grid.clock
    return history(selected.rounds, selected.start(grid, ARRAYS, n_rounds))


def run_buffered(
    grid: FakeGrid, scheduler: Scheduler, strategy: Any, n_versions: int, options: dict[str, Any]
) -> dict[str, Any]:
    buffered = Buffered(strategy, scheduler, **options)
    buffered._clock = grid.clock
    return history(buffered.rounds, buffered.start(grid, ARRAYS, n_versions))


def run_loop(
    grid: FakeGrid, scheduler: Scheduler, n_rounds: int, options: dict[str, Any]
) -> dict[str, Any]:
    """Run a loop of one's own; what came back is stored, too."""
    summaries, replied = [], []
    for cohort in rounds(grid, scheduler, n_rounds=n_rounds, clock=grid.clock, **options):
        messages = [
            Message(RecordDict({"arrays": ARRAYS}), node, "train") for node in sorted(cohort.nodes)
        ]
        replies = cohort.send_and_receive(messages)
        replied.append([reply.metadata.src_node_id for reply in replies if reply.has_content()])
        summaries.append(cohort.summary)
    return {"rounds": [shown(one) for one in summaries], "replied": replied}


def shown(summary: Any) -> dict[str, Any]:
    """Return what is stored of the summary of a round, or of a version."""
    names = ["server_round", "t", "cohort", "kept", "timeouts", "failed", "latencies", "duration_s"]
    names += ["n_late", "n_seen", "n_fleet"]
    names += [name for name in ("staleness", "n_busy") if hasattr(summary, name)]
    return {name: getattr(summary, RENAMED.get(name, name)) for name in names}


RENAMED = {"t": "round", "n_fleet": "n_clients"}
"""Fields of a summary that have another name than in the fixture."""


def history(summaries: list[Any], result: Any) -> dict[str, Any]:
    evaluated = {
        str(t): float(metrics["accuracy"])
        for t, metrics in result.evaluate_metrics_clientapp.items()
    }
    return {
        "rounds": [shown(one) for one in summaries],
        "model": result.arrays["w"].numpy().tolist(),
        "evaluated": evaluated,
    }


# --- the cases ------------------------------------------------------------------------------------

N_ROUNDS = 15
PACE: tuple[str, dict[str, Any]] = ("pace", {})
BSFL: tuple[str, dict[str, Any]] = ("bsfl", {"alpha": 3.0})
RANDOM: tuple[str, dict[str, Any]] = ("random", {})


def nodes_of(n: int, seed: int, **changed: Any) -> dict[int, FakeNode]:
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
        nodes[101 + k] = FakeNode(
            name=str(k),
            takes=itertools.cycle(takes),
            metrics={"train_loss": 0.25 + 0.125 * (k % 7), "num-examples": 10 + 3 * k},
        )
    for name, attributes in changed.items():
        for attribute, value in attributes.items():
            setattr(nodes[int(name[1:])], attribute, value)
    return nodes


class NotingGrid(FakeGrid):
    """A grid that notes who is messaged when, and whose nodes may come and go.

    Replies come in the order of their arrival, whatever order they are asked for in: Flower's
    strategies write messages in an order drawn from Python's global generator.

    Attributes:
        away: By node, the seconds [from, until) since the start in which it is not connected.
        messages: [seconds since the start, type, nodes] of what was sent at one moment.
    """

    def __init__(self, nodes: dict[int, FakeNode], away: dict[int, tuple[float, float]]) -> None:
        super().__init__(nodes, FakeClock())
        self.away, self.started_at = away, self.clock.now
        self.messages: list[list[Any]] = []
        self.node_of: dict[str, int] = {}

    def get_node_ids(self) -> list[int]:
        now = self.clock.now - self.started_at
        gone = {node for node, (since, until) in self.away.items() if since <= now < until}
        return sorted(self.online - gone)

    def push_messages(self, messages: Any) -> Any:
        messages, now = list(messages), self.clock.now - self.started_at
        for one in messages:
            kind, node = one.metadata.message_type, one.metadata.dst_node_id
            if not self.messages or self.messages[-1][:2] != [now, kind]:
                self.messages.append([now, kind, []])
            self.messages[-1][2] = sorted([*self.messages[-1][2], node])
        pushed = super().push_messages(messages)
        self.node_of |= {m.metadata.message_id: m.metadata.dst_node_id for m in messages}
        return pushed

    def pull_messages(self, message_ids: Any) -> Any:
        def arrival(message_id: str) -> tuple[float, int]:
            return self.on_the_way[message_id][0], self.node_of[message_id]

        return super().pull_messages(sorted(message_ids, key=arrival))


def no_evaluation() -> FedAvg:
    return FedAvg(fraction_evaluate=0.0)


SILENT = {"takes": None}


def sometimes_silent() -> dict[str, Any]:
    return {"takes": itertools.cycle([2.0, None, 3.0, None, None])}


def long() -> dict[str, Any]:
    return {"takes": itertools.cycle([18.0, 14.5, 25.0])}


def _fedavg(policy: tuple[str, dict[str, Any]], **options: Any) -> tuple[Any, ...]:
    return nodes_of(10, 1), {}, policy, 3, options


def _cases() -> dict[str, Any]:
    """Return by name what makes a case: nodes, who is away, policy, cohort size, options."""

    def flaky() -> dict[str, Any]:
        return {"_104": sometimes_silent(), "_108": long(), "_111": SILENT}

    return {
        "fedavg/random": lambda: _fedavg(RANDOM),
        "fedavg/pace": lambda: _fedavg(PACE),
        "fedavg/bsfl": lambda: _fedavg(BSFL),
        "fedavg/oort": lambda: _fedavg(("oort", {"tau_max": 20.0}), loss_key="train_loss"),
        "invite-1.3/pace": lambda: (
            *(nodes_of(14, 2, _105=long()), {}, PACE, 4),
            {"over_selection": 1.3, "deadline_s": 10.0},
        ),
        "invite-1.3/bsfl": lambda: (
            *(nodes_of(14, 2, _105=long()), {}, BSFL, 4),
            {"over_selection": 1.3, "deadline_s": 10.0},
        ),
        "invite-auto/pace": lambda: (
            *(nodes_of(14, 3, **flaky()), {}, PACE, 4),
            {"over_selection": "auto", "deadline_s": 10.0},
        ),
        "failing/pace": lambda: (
            *(nodes_of(8, 4, _102={"fails": RAISED}, _105={"fails": GONE}), {}, PACE, 3),
            {"deadline_s": 12.0},
        ),
        "silent/bsfl": lambda: (
            *(nodes_of(8, 5, _103=SILENT, _106=long()), {}, BSFL, 4),
            {"deadline_s": 10.0, "min_responses": 3, "lifetime_s": 25.0},
        ),
        "churn/pace": lambda: (
            nodes_of(12, 6),
            {
                101: (0.0, 20.0),
                104: (10.0, 45.0),
                107: (15.0, 35.0),
                110: (30.0, 1e9),
                112: (0.0, 40.0),
            },
            *(PACE, 4),
            {"deadline_s": 10.0, "leave_after_s": 15.0, "over_selection": 1.3},
        ),
        "evaluation/pace": lambda: (
            *(nodes_of(8, 7, _103={"evaluates": 15.0}, _107=long()), {}, PACE, 3),
            {"deadline_s": 10.0, "evaluate_deadline_s": 4.0},
        ),
        "buffered/pace": lambda: (
            *(nodes_of(12, 8, _104=SILENT, _109=long()), {}, PACE, 4),
            {"concurrency": 4, "buffer": 2, "deadline_s": 15.0},
        ),
        "buffered/bsfl": lambda: (
            *(nodes_of(12, 9, _102={"fails": RAISED}), {105: (10.0, 40.0)}, BSFL, 5),
            {"deadline_s": 15.0},
        ),
        "loop/pace": lambda: (
            *(nodes_of(10, 10, _106=SILENT), {}, PACE, 4),
            {"deadline_s": 8.0, "over_selection": 1.5},
        ),
    }


CASES = tuple(_cases())


def compute(case: str) -> dict[str, Any]:
    """Return the summaries of all rounds, the model, and who was messaged when."""
    nodes, away, (policy, settings), cohort_size, options = _cases()[case]()
    grid = NotingGrid(nodes, away)
    scheduler = make_scheduler(policy, settings, cohort_size)
    with quiet_flower():
        if case.startswith("buffered"):
            found = run_buffered(grid, scheduler, no_evaluation(), 2 * N_ROUNDS, options)
        elif case.startswith("loop"):
            found = run_loop(grid, scheduler, N_ROUNDS, options)
        else:
            strategy = FedAvg() if case.startswith("evaluation") else no_evaluation()
            found = run_selected(grid, scheduler, strategy, N_ROUNDS, options)
    return found | {"messages": grid.messages}


@contextmanager
def quiet_flower() -> Iterator[None]:
    """Let messages be written without a server, by seeded strategies; nothing is logged."""
    log = logging.getLogger("flwr")
    level = log.level
    environment = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    identity = {"_task_id": 1, "_run_id": 1, "_node_id": 1}
    with tempfile.TemporaryDirectory() as home:
        environment["FLWR_HOME"] = home
        with patch.dict(os.environ, environment), patch.multiple(TaskIdentity, **identity):
            log.setLevel(logging.CRITICAL)
            state = random.getstate()
            random.seed(4711)
            try:
                yield
            finally:
                random.setstate(state)
                log.setLevel(level)
