"""Sums over a journal, by hand."""

import math
import time
from statistics import NormalDist

import numpy as np
import pytest

from bsfl import Scheduler, UniformRandom
from bsfl.dashboard.sums import LAST_COHORTS, Sums, is_short, last_clients
from bsfl.errors import InvalidInput
from bsfl.monitoring import read_journal
from journal_entries import closed, opened, responses, whole


def summed(*entries):
    sums = Sums()
    for entry in entries:
        sums.add(entry)
    return sums


def column(sums, name):
    """Return a number of each client by its id."""
    return {client: sums.clients.table[name][row] for client, row in sums.index.items()}


def last(sums):
    return [[sums.names[one.rows[i]] for i in last_clients(one)[0]] for one in sums.cohorts]


def test_seconds_lost_are_those_beyond_the_second_slowest():
    sums = summed(
        *whole(1, [2.0, 5.0, 11.0]),  # c costs 6 s
        *whole(2, [9.0, 5.0, 8.0]),  # a costs 1 s
        *whole(3, [7.0]),  # alone: all of it
    )
    assert column(sums, "lost_s") == {"a": 8.0, "b": 0.0, "c": 6.0}
    assert last(sums) == [["c"], ["a"], ["a"]]
    assert (sums.rounds.n, sums.total_s, sums.recent_s) == (3, 27.0, 9.0)
    assert sums.fair_count == 3 / 4 + 3 / 4 + 1 / 4
    assert column(sums, "n_fresh") == {"a": 3, "b": 2, "c": 2}
    assert column(sums, "n_last") == {"a": 2, "b": 0, "c": 1}


def test_clients_that_come_last_together_share_the_seconds():
    sums = summed(*whole(1, [2.0, 60.0, 60.0], outcome=["ok", "timeout", "timeout"]))
    assert last(sums) == [["b", "c"]]
    assert column(sums, "lost_s") == {"a": 0.0, "b": 29.0, "c": 29.0}, "58 s for two"


def test_a_late_response_belongs_to_its_own_round_and_costs_no_second():
    sums = summed(
        opened(1, ["a", "b", "c", "d"], target_responses=2),
        responses(1, {"a": 2.0, "b": 5.0}),
        closed(1, 5.0),
        *whole(2, [3.0, 1.0]),
        responses(1, {"c": 70.0}, is_late=True),
        responses(1, {"d": 90.0}, outcome=["timeout"], is_late=True),
    )
    assert column(sums, "lost_s") == {"a": 2.0, "b": 3.0, "c": 0.0, "d": 0.0}
    assert sums.cohorts[0].latency_s.tolist() == [2.0, 5.0, 70.0, 90.0]
    assert sums.cohorts[0].is_late.tolist() == [False, False, True, True]
    counts = sums.rounds.table[["n_invited", "n_fresh", "n_late", "n_lost"]].tolist()
    assert counts == [(4, 2, 1, 1), (2, 2, 0, 0)]


def test_a_round_is_short_if_it_ended_by_its_deadline_or_below_its_target():
    sums = summed(
        *whole(1, [2.0, 5.0], target_responses=2, deadline_s=9.0),
        *whole(2, [2.0, 9.0], target_responses=2, deadline_s=9.0),
        *whole(3, [2.0, 5.0], target_responses=3),
        *whole(4, [2.0, 5.0, 5.0], target_responses=2),  # over-selection
    )
    assert is_short(sums.rounds.table).tolist() == [False, True, True, False]


def test_a_missing_response_counts_if_the_round_has_waited_for_it_or_none_ever_came():
    sums = summed(
        *whole(1, [2.0, 5.0, 6.0]),
        opened(2, ["a", "b", "c", "d"], target_responses=3),
        responses(2, {"a": 2.0, "b": 3.0}),
        closed(2, 60.0),  # c has missed a round that waited for it, d has never responded
        opened(3, ["a", "b", "c", "d"], target_responses=1),
        responses(3, {"a": 2.0}),
        closed(3, 2.0),  # it did not wait for b
    )
    rates = sums.response_rates(sums.invited()).tolist()
    assert dict(zip(sums.names, rates, strict=True)) == {"a": 1.0, "b": 1.0, "c": 0.5, "d": 0.0}
    observed, conditions = sums.random_selection()
    assert observed.n_misses.tolist() == [0, 0, 1, 2]
    assert (conditions.n_invited, conditions.target_responses) == (4, 3), "medians"


def test_a_missing_response_also_counts_where_late_ones_are_reported_and_it_is_overdue():
    over_selected = [
        entry
        for number in range(1, LAST_COHORTS + 4)
        for entry in (
            opened(number, ["a", "b", "c"], target_responses=1),
            responses(number, {"a": 2.0}),
            closed(number, 2.0),
        )
    ]
    sums = summed(*whole(99, [1.0, 1.0, 1.0]), *over_selected)
    assert sums.random_selection()[0].n_misses.tolist() == [0, 0, 0], "it is not known"
    sums.add(responses(1, {"b": 9.0}, is_late=True))
    # of 13 rounds the last 10 may still have a response, and b has responded in one of the others
    assert sums.random_selection()[0].n_misses.tolist() == [0, 2, 3]


def test_rounds_that_overlap():
    sums = summed(opened(1, ["a", "b"]), opened(2, ["b", "c"]), responses(2, {"b": 3.0}))
    assert [one.outcome.tolist() for one in sums.open.values()] == [[-1, -1], [0, -1]]
    assert sums.waiting is sums.open[2]
    for entry in (closed(1, None), responses(2, {"c": 4.0}), closed(2, 4.0), closed(2, 4.0)):
        sums.add(entry)
    assert (sums.rounds.n, sums.waiting, sums.recent_s) == (2, None, 4.0), "a credit is replaced"


def test_abandoned_forgotten_and_renamed_clients():
    sums = summed(*whole(1, [2.0, 5.0, 11.0]), opened(2, ["a", "b", "c"]))
    sums.add({"kind": "abandoned", "clients": ["c", "zoe"]})
    sums.add({"kind": "forgotten", "clients": ["b"]})
    sums.add({"kind": "renamed", "client": "a", "name": "ann"})
    sums.add(responses(2, {"ann": 2.0}))
    assert column(sums, "n_fresh") == {"ann": 2, "c": 1}
    assert [sums.names[row] for row in sums.invited()] == ["ann", "c"]
    assert sums.open[2].outcome.tolist() == [0, -2, -2]


def test_latencies_by_hand():
    sums = summed(*whole(1, [1.0]), *whole(2, [4.0]), *whole(3, [16.0]), opened(4, ["z"]))
    # logarithms to base 4 are 0, 1, 2: mean 1, squared deviations 2; as in Scheduler.table
    spread = 2 * math.log(4) ** 2
    variance = (4 * 0.05 + spread) / (4 + 2)
    sigma = math.sqrt((4 * variance + spread) / (4 + 2))
    wide = math.exp(NormalDist().inv_cdf(0.9) * sigma * math.sqrt(1 + 1 / 3))
    columns = sums.latencies(sums.invited())
    assert np.transpose(columns)[0].tolist() == pytest.approx([4.0, 4.0 / wide, 4.0 * wide])
    assert np.isnan(np.transpose(columns)[1]).all()


def test_availability_is_counted_by_local_hour():
    noon = time.mktime((2026, 3, 4, 12, 30, 0, 0, 0, 0))
    sums = summed(
        *whole(1, [2.0], n_available=4, time=noon), *whole(2, [2.0], n_available=8, time=noon + 60)
    )
    assert (sums.n_available[12], sums.n_by_hour[12], sums.n_by_hour.sum()) == (12, 2, 2)


def test_the_last_cohorts_are_kept():
    sums = summed(*(entry for t in range(1, 400) for entry in whole(t, [2.0])))
    assert [one.number for one in sums.cohorts] == list(range(400 - LAST_COHORTS, 400))


WHY = {"unit": "s", "clients": ["a"], "expected": [1.0], "worth": 3}
ARM = {"policy": "Pace()", "which": 2, "block": 0, "counts": True}


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"kind": []}, "kind"),
        (opened(2, ["a"], time="noon"), "time"),
        (opened(2, ["a"], time=1e300), "time"),
        (opened(2, ["a"], deadline_s=math.inf), "deadline_s"),
        (opened(2, [[]]), "invited"),
        (opened(2, ["a", "a"]), "invited"),
        (opened(2, ["a"], n_available="many"), "n_available"),
        (opened(10**30, ["a"]), "round"),
        (opened(2, ["a"], why=[]), "why"),
        (opened(2, ["a"], why=WHY), "worth"),
        (opened(2, ["a"], arm=ARM), "which"),
        (responses(1, {"a": 2.0}) | {"outcome": []}, "outcome"),
        (responses(1, {"a": 2.0}, outcome=["great"]), "outcome"),
        (responses(1, {"a": "2"}), "latency_s"),
        (responses(1, {"a": math.nan}) | {"latency_s": [-1.0]}, "latency_s"),
        (responses(9, {"zoe": 2.0}) | {"round": True}, "round"),
        (responses(1, {"a": 10**400}), "latency_s"),
        (closed(1, 2.0, diagnostics={"alpha": 10**400}), "diagnostics"),
        (closed("x", 2.0), "round"),
        (closed(1, 2.0, diagnostics={"alpha": "<b>"}), "diagnostics"),
        ({"kind": "renamed"}, "rename"),
        ({"kind": "forgotten", "clients": 5}, "clients"),
    ],
)
def test_a_malformed_entry_names_its_field_and_changes_nothing(wrong, field):
    sums, same = summed(*whole(1, [2.0])), summed(*whole(1, [2.0]))
    with pytest.raises(InvalidInput, match=field):
        sums.add(wrong)
    assert (sums.index, sums.fair_count, sums.open) == (same.index, same.fair_count, same.open)
    assert sums.clients.table.tolist() == same.clients.table.tolist()


def test_a_large_cohort_takes_no_quadratic_time():
    latency_s = dict.fromkeys(range(20_000), 1.0)
    begin = time.process_time()
    summed(opened(1, latency_s), responses(1, latency_s), closed(1, 1.0))
    assert time.process_time() - begin < 5


def test_participations_are_those_of_the_scheduler(tmp_path):
    """In time and aggregated, late and applied; not late and dropped, nor after its credit went."""
    for late in ("apply", "drop"):
        journal = tmp_path / f"{late}.jsonl"
        scheduler = Scheduler(UniformRandom(), cohort_size=2, late=late, journal=journal)
        clients = ["ann", "bob", "cem"]  # two of three are needed; all are invited
        for aggregated in (None, ["ann"], []):
            cohort = scheduler.select(clients, cohort_size=2, over_selection=1.5)
            scheduler.observe({"ann": 1.0, "bob": 2.0}, round=cohort)
            if aggregated is not None:
                scheduler.close(cohort, aggregated=aggregated)
            scheduler.observe({"cem": 9.0}, round=cohort)
        sums = Sums()
        for entry in read_journal(journal):
            sums.add(entry)
        expected = {row["client"]: row["participations"] for row in scheduler.table()}
        counted = sums.clients.table["n_participations"][sums.invited()]
        assert dict(zip(sums.names, counted.tolist(), strict=True)) == expected
        assert expected == {"ann": 2, "bob": 1, "cem": 3 * (late == "apply")}
