"""Clients that come and go on the virtual clock."""

import numpy as np
import pytest

from bsfl.errors import InvalidInput
from bsfl.simulation import Intervals, SimulatedClients, lognormal, read_intervals

NAN = np.nan
RNG = np.random.default_rng(0)


def intervals_of(*clients, period_s=100.0, origin_s=0.0):
    """Return the intervals of clients, each given as a list of (start, end)."""
    start, end = np.array([pair for client in clients for pair in client]).reshape(-1, 2).T
    offsets = np.append(0, np.cumsum([len(client) for client in clients]))
    return Intervals(start, end, offsets, period_s, origin_s)


# early and late, never, over the end of the period, always
CLIENTS = intervals_of([(10, 20), (40, 70)], [], [(30, 35), (90, 115)], [(5, 105)])


@pytest.mark.parametrize(
    ("clock_s", "online_s", "online_until"),
    [
        (0.0, [NAN, NAN, 10, 95], [NAN, NAN, 15, np.inf]),
        (10.0, [0, NAN, 20, 5], [20, NAN, 15, np.inf]),
        (15.0, [5, NAN, NAN, 10], [20, NAN, NAN, np.inf]),
        (20.0, [NAN, NAN, NAN, 15], [NAN, NAN, NAN, np.inf]),
        (34.0, [NAN, NAN, 4, 29], [NAN, NAN, 35, np.inf]),
        (69.0, [29, NAN, NAN, 64], [70, NAN, NAN, np.inf]),
        (99.0, [NAN, NAN, 9, 94], [NAN, NAN, 115, np.inf]),
        (310.0, [0, NAN, 20, 5], [320, NAN, 315, np.inf]),  # as at 10, three periods later
    ],
)
def test_which_clients_are_online_since_when_and_until_when(clock_s, online_s, online_until):
    assert np.array_equal(CLIENTS.online_s(clock_s), online_s, equal_nan=True)
    assert np.array_equal(CLIENTS.online_until(clock_s), online_until, equal_nan=True)
    online = CLIENTS.reachable(1, clock_s, 4, RNG)
    assert online.tolist() == (~np.isnan(online_s)).tolist()


def test_the_clock_may_start_at_any_second_of_the_period():
    later = intervals_of([(10, 20), (40, 70)], origin_s=45.0)
    # 45 + 5 = 50 is 10 s into the second interval and 20 s before its end
    assert (later.online_s(5.0), later.online_until(5.0)) == ([10.0], [25.0])
    assert later.online_until(70.0) == [75.0]  # 45 + 70 = 115 is second 15 of the next period


def test_lookups_equal_a_search_through_all_intervals():
    """The oracle looks at every interval of every client."""
    rng = np.random.default_rng(1)
    clients = []
    for _ in range(300):
        edges = np.sort(rng.choice(1000, 2 * rng.integers(0, 20), replace=False)).astype(float)
        clients.append(edges.reshape(-1, 2).tolist())
    intervals = intervals_of(*clients, period_s=1000.0)
    for clock_s in (0.0, 1.0, 499.5, 500.0, 999.0, 2345.0):
        now = clock_s % 1000.0
        expected = [
            next((now - start for start, end in client if start <= now < end), NAN)
            for client in clients
        ]
        assert np.array_equal(intervals.online_s(clock_s), expected, equal_nan=True)
    assert np.isnan(intervals_of([], []).online_until(3.0)).all(), "no client ever comes"


@pytest.mark.parametrize(
    ("clients", "got"),
    [
        ([[(1, 2)], [(5, 5)]], r"client 1 .* got \[5, 5\)"),
        ([[(1, 2)], [], [(-1, 5)]], r"client 2 .* got \[-1, 5\)"),
        ([[(1, 2), (100, 101)]], r"client 0 .* got \[100, 101\)"),
        ([[(1, 12), (10, 13)]], r"client 0 .* got \[1, 12\)"),
        ([[(1, 2), (90, 102)]], r"client 0 .* got \[90, 102\)"),
    ],
)
def test_intervals_that_cannot_be_are_rejected(clients, got):
    with pytest.raises(InvalidInput, match=got):
        intervals_of(*clients)


def test_arrays_of_different_lengths_are_rejected():
    with pytest.raises(InvalidInput, match="must describe the same intervals, got 2, 2 and 3"):
        Intervals(np.array([1.0, 4.0]), np.array([2.0, 5.0]), np.array([0, 3]))


def read(tmp_path, rows, n_clients=1, **settings):
    path = tmp_path / "own.csv"
    path.write_text("client,start_s,end_s\n" + rows)
    return read_intervals(n_clients, np.random.default_rng(0), path=path, **settings)


def test_a_record_is_followed_without_replacement_while_there_are_enough(tmp_path):
    rows = "a,10,20\nb,30,50\na,40,70\nc,0,1\n"
    three = read(tmp_path, rows, 3, period_s=100.0)
    pairs = sorted(zip(three.start, three.end, strict=True))
    assert pairs == [(0, 1), (10, 20), (30, 50), (40, 70)]
    assert sorted(np.diff(three.offsets)) == [1, 1, 2]
    ten = read(tmp_path, rows, 10, period_s=100.0)
    assert (ten.n_clients, set(np.diff(ten.offsets))) == (10, {1, 2})


def test_a_record_lasts_a_week_and_may_start_at_any_hour(tmp_path):
    week = read(tmp_path, "a,36000,39600\n", start_hour=10.5)
    assert week.period_s == 7 * 24 * 3600
    assert week.online_s(0.0) == [1800.0], "half an hour into an interval from ten to eleven"
    assert week.online_until(604_800.0) == [604_800.0 + 1800.0]


def test_intervals_that_touch_are_one(tmp_path):
    one = read(tmp_path, "a,0,10\na,40,50\na,50,60\na,90,100\n", period_s=100.0)
    assert one.start.tolist() == [40, 90]
    assert one.end.tolist() == [60, 110], "from 90 over the end of the period to 10"
    always = read(tmp_path, "a,0,30\na,30,100\n", period_s=100.0)
    assert always.online_until(99.0) == [np.inf]


@pytest.mark.parametrize(
    ("rows", "settings", "message"),
    [
        ("a,1,2\na,noon,9\n", {}, "own.csv, line 3: start_s must be a number from 0 to"),
        ("a,-1,2\n", {}, "line 2: start_s must be a number from 0 to 1e.12, got '-1'"),
        ("a,5,5\n", {}, "line 2: end_s must be after start_s = 5, got 5"),
        ("a,1,9\nb,3,4\na,8,12\n", {}, "line 4: .*, got start_s = 8 after end_s = 9"),
        ("a,20,30\na,1,9\n", {}, "line 3: .* client 'a' must .* start_s = 1 after end_s = 30"),
        ("a,604800,604900\n", {}, "line 2: start_s must be below the period .*, got 604800"),
        ("a,1000,2000\na,604000,605900\n", {}, "line 3: end_s must be at most 605800"),
        ("a,1,2\n", {"start_hour": 25}, "start_hour must be between 0 and 24, got 25"),
        ("a,1,2\n", {"period_s": 0}, "period_s must be a finite number above 0, got 0"),
    ],
)
def test_mistakes_in_a_record_are_named_with_their_line(tmp_path, rows, settings, message):
    with pytest.raises(InvalidInput, match=message):
        read(tmp_path, rows, **settings)


def test_a_response_that_would_come_after_its_client_left_never_comes():
    # every client takes 8 s; at 12 client 0 stays until 20, at 13 it leaves a second too early
    latency = lognormal(np.full(4, 8.0), np.zeros(4))
    clients = SimulatedClients(latency=latency, tau_min=1.0, tau_max=60.0, availability=CLIENTS)
    assert clients.latencies(1, 12.0).tolist() == [8, np.inf, np.inf, 8]
    assert clients.latencies(1, 13.0).tolist() == [np.inf, np.inf, np.inf, 8]
    # over the end of the period and far into later ones; client 2 is online from 90 to 115
    assert clients.latencies(1, 99.0).tolist() == [np.inf, np.inf, 8, 8]
    assert clients.latencies(1, 707.0).tolist() == [np.inf, np.inf, 8, 8]
    assert clients.latencies(1, 708.0).tolist() == [np.inf, np.inf, np.inf, 8]
