"""The effect of one policy against another that alternated with it."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from bsfl import Alternating, CsUcb, Scheduler, UniformRandom
from bsfl.cli.app import app
from bsfl.errors import InvalidInput
from bsfl.estimators.switchback import Block
from bsfl.monitoring.effect import effect_of, journal_effect

FAST, RANDOM = CsUcb(tau_max=100.0), UniformRandom()


def run(scheduler, n_rounds):
    """Let client k take k + 1 seconds in every round."""
    for _ in range(n_rounds):
        cohort = scheduler.select(available=range(10))
        scheduler.observe({client: 1.0 + client for client in cohort}, round=cohort)
    return scheduler


def alternating(**settings):
    return Scheduler(Alternating(FAST, RANDOM, block=4, **settings), cohort_size=2)


def test_by_hand():
    """Rounds of 2 and 4 s, then of 3 and 6 s: differences -2 and -3, ratios both 2."""
    blocks = [
        Block(number=0, arm=1, n_rounds=3, total_s=12.0, n_responses=6),
        Block(number=1, arm=0, n_rounds=3, total_s=6.0, n_responses=6),
        Block(number=2, arm=0, n_rounds=2, total_s=6.0, n_responses=4),
        Block(number=3, arm=1, n_rounds=2, total_s=12.0, n_responses=4),
        Block(number=4, arm=0, n_rounds=2, total_s=1.0, n_responses=4),  # its pair is missing
    ]
    found = effect_of(blocks, ("a", "b"))
    assert found.n_pairs == 2
    assert (found.round_s.first, found.round_s.second, found.round_s.difference) == (2.5, 5.0, -2.5)
    assert found.responses_per_s.first == (1 + 4 / 6) / 2
    assert found.speed_up == pytest.approx((2.0, 0.0, np.inf))
    assert "An interval needs 6 pairs of blocks." in str(found)
    assert json.loads(json.dumps(found.as_json()))["speed_up"] == pytest.approx([2.0, 0.0, None])


def test_scheduler_journal_and_command_agree(tmp_path):
    journal, state = tmp_path / "rounds.jsonl", tmp_path / "server.bsfl"
    scheduler = alternating()
    scheduler.write_journal(journal)
    run(scheduler, 30)
    scheduler.save(state)
    scheduler = run(Scheduler.load(state, journal=journal), 31)
    found = scheduler.effect()
    assert found.n_pairs == 7
    assert journal_effect(journal) == found
    assert found.speed_up[0] > 1.1
    shown = CliRunner().invoke(app, ["effect", str(journal)])
    assert shown.output.rstrip() == str(found)
    as_json = CliRunner().invoke(app, ["effect", str(journal), "--json"])
    assert json.loads(as_json.output) == json.loads(json.dumps(found.as_json()))


def test_rounds_that_were_run_again_after_a_restart_count_once(tmp_path):
    journal, state = tmp_path / "rounds.jsonl", tmp_path / "server.bsfl"
    scheduler = alternating()
    scheduler.write_journal(journal)
    run(scheduler, 20).save(state)
    run(scheduler, 20)
    scheduler = run(Scheduler.load(state, journal=journal), 40)
    assert journal_effect(journal) == scheduler.effect()


def test_the_first_rounds_of_a_block_are_left_out():
    """The second round of each block of two is that of all its seconds and responses."""
    policy = Alternating(FAST, RANDOM, block=2, washout=1)
    scheduler = Scheduler(policy, cohort_size=1)
    for t in range(1, 9):
        cohort = scheduler.select(available=["ann"])
        scheduler.observe({"ann": float(t)}, round=cohort)
    blocks = policy.blocks(scheduler._engine.policy_state)
    assert [(one.n_rounds, one.total_s, one.n_responses) for one in blocks] == [
        (1, t, 1) for t in (2.0, 4.0, 6.0, 8.0)
    ]


def test_late_responses_count_until_a_later_block_closes_a_round():
    scheduler = alternating(washout=0)
    cohorts = []
    for _ in range(5):
        cohorts.append(scheduler.select(available=range(10)))
        first, second = cohorts[-1]
        scheduler.observe({first: 1.0}, round=cohorts[-1])
        scheduler.close(cohorts[-1])
        if len(cohorts) == 2:
            scheduler.observe({second: 9.0}, round=cohorts[-1])
    scheduler.observe({cohorts[3][1]: 9.0}, round=cohorts[3])
    blocks = scheduler.policy.blocks(scheduler._engine.policy_state)
    assert [one.n_responses for one in blocks] == [4 + 1, 1]


def test_without_alternating_policies_the_error_names_them(tmp_path):
    journal = tmp_path / "rounds.jsonl"
    scheduler = run(Scheduler(cohort_size=2, journal=journal), 2)
    for ask in (scheduler.effect, lambda: journal_effect(journal)):
        with pytest.raises(InvalidInput, match="Alternating"):
            ask()
    wrong = CliRunner().invoke(app, ["effect", str(tmp_path / "none.jsonl")])
    assert wrong.exit_code == 2
    assert "none.jsonl" in wrong.output
