"""The tables [clients...]: drift, failures, availability, and how many clients there are."""

import numpy as np
import pytest

from bsfl.errors import InvalidInput
from bsfl.experiments import read_scenario
from small_scenario import SMALL, parse


def test_clients_depend_on_the_seed():
    spec = parse().clients
    assert np.array_equal(spec.build(1).latencies(2, 0.0), spec.build(1).latencies(2, 0.0))
    assert not np.array_equal(spec.build(1).latencies(2, 0.0), spec.build(2).latencies(2, 0.0))


def test_a_drift_by_swapping_moves_the_share_it_says():
    latency = parse(clients__drift={"at": 4, "share": 0.5}).clients.build(0).latency
    assert np.sum(latency.source != np.arange(12)) == 6
    assert sorted(latency.source) == list(range(12))


def test_a_few_clients_may_be_flaky():
    failures = {"probability": 1.0, "share": 0.25}
    scenario = parse(clients__failures=failures)
    lost = [np.isinf(scenario.clients.build(1).latencies(t, 0.0)) for t in range(1, 20)]
    assert np.all(lost == lost[0]), "the same clients in every round"
    assert np.sum(lost[0]) == 3, "a quarter of 12"
    other = scenario.clients.build(2).latencies(1, 0.0)
    assert not np.array_equal(np.isinf(other), lost[0]), "others with another seed"
    with_base = parse(clients__failures={**failures, "base": 0.25}).clients.build(1).latency
    assert sorted(with_base.probability) == [0.25] * 9 + [1.0] * 3
    malicious = parse(clients__false_reports={"share": 0.25, "time": True}).clients.build(0)
    assert malicious.malicious.is_malicious.sum() == 3


def test_all_tables_of_clients_are_built():
    scenario = parse(
        clients__availability={"kind": "independent", "probability": 0.5},
        clients__drift={"at": 5, "share": 0.5, "kind": "scale", "factor": 3.0, "ramp": 2},
        clients__failures={"probability": 0.25},
        clients__data={"mean_samples": 50, "size_sigma": 0.5, "quality": [0.5, 1.0]},
    )
    clients = scenario.clients.build(seed=1)
    assert clients.n_clients == 12
    assert 0 < len(clients.available(1, 0.0)) < 12
    assert np.isinf(np.concatenate([clients.latencies(t, 0.0) for t in range(1, 20)])).any()
    assert clients.latency.phase(1) != clients.latency.phase(9)
    assert clients.samples.mean() == pytest.approx(50, rel=0.05)
    assert np.all((clients.quality >= 0.5) & (clients.quality <= 1.0))


def read_changed(tmp_path, *changes):
    """Return the small scenario of a file in which each text is replaced by another one."""
    text = SMALL
    for old, new in changes:
        text = text.replace(old, new)
    (tmp_path / "own.toml").write_text(text)
    return read_scenario(tmp_path / "own.toml")


def availability(table):
    return ("[objective]", f"[clients.availability]\n{table}\n\n[objective]")


TRACE = ('population = "lognormal"', 'population = "trace"\npath = "log.csv"')


def test_clients_may_come_and_go_as_a_file_or_a_week_says(tmp_path):
    (tmp_path / "own.csv").write_text("client,start_s,end_s\na,3600,7200\n")
    table = 'kind = "intervals"\npath = "own.csv"\nperiod_s = 86400\nstart_hour = 1.5'
    clients = read_changed(tmp_path, availability(table)).simulated_clients(0)
    # all follow the one record: at half past one they have been there for half an hour
    assert clients.online_s(0.0).tolist() == [1800.0] * 12
    assert len(clients.available(1, 1800.0)) == 0
    week = parse(clients__availability={"kind": "week", "start_hour": 5.0}).clients.build(0)
    assert week.availability.origin_s == 5 * 3600
    assert parse().clients.build(0).online_s(0.0) is None


def test_clients_have_the_names_of_the_trace(tmp_path):
    (tmp_path / "log.csv").write_text("client,latency_s\na,1\nb,2\n")
    fewer = ("n_clients = 12", "n_clients = 4")
    clients = read_changed(tmp_path, TRACE, fewer).simulated_clients(0)
    seconds = dict(zip(clients.ids, clients.latencies(1, 0.0).tolist(), strict=True))
    assert len(seconds) == 4, "four names, though four clients follow two"
    assert all(s == {"a": 1.0, "b": 2.0}[name.partition("+")[0]] for name, s in seconds.items())
    assert clients.name(0) == clients.ids[0]
    assert parse().simulated_clients(0).name(3) == "3"


def test_files_say_how_many_clients_there_are(tmp_path):
    (tmp_path / "log.csv").write_text("client,latency_s\na,1\nb,2\nb,3\nc,4\nd,5\n")
    rows = "".join(f"{name},0,3600\n" for name in "abcde")
    (tmp_path / "own.csv").write_text(f"client,start_s,end_s\n{rows}")
    np.save(tmp_path / "states.npy", np.ones((3, 6), dtype=np.int8))
    rng = np.random.default_rng(0)
    owner = np.repeat([f"phone-{k}" for k in range(7)], 10)
    np.savez(tmp_path / "data.npz", x=rng.normal(size=(70, 2)), y=np.arange(70) % 2, client=owner)
    uncounted = ("n_clients = 12\n", "")
    intervals = availability('kind = "intervals"\npath = "own.csv"')
    states = availability('kind = "recorded"\npath = "states.npy"')
    data = ("[objective]", '[learning]\ndataset = "data.npz"\n\n[objective]')
    for changes, n_clients in (
        ([TRACE], 4),
        ([intervals], 5),
        ([states], 6),
        ([data], 7),
        ([TRACE, data, intervals], 4),
    ):
        scenario = read_changed(tmp_path, uncounted, *changes)
        assert scenario.simulated_clients(0).n_clients == n_clients
        assert scenario.plain()["clients"]["n_clients"] == n_clients, "the manifest says it"
    names = read_changed(tmp_path, uncounted, TRACE).simulated_clients(0).ids
    assert sorted(names) == ["a", "b", "c", "d"], "each of the trace once"
    with pytest.raises(InvalidInput, match=r"own.toml \[clients\]: missing key 'n_clients'"):
        read_changed(tmp_path, uncounted)
    for path, message in (("", "missing key 'path'"), ("path = 3", "path must be")):
        for place, change in (
            ("latency", (TRACE[0], f'population = "trace"\n{path}')),
            ("availability", availability(f'kind = "recorded"\n{path}')),
        ):
            with pytest.raises(InvalidInput, match=rf"\[clients.{place}\]: {message}"):
                read_changed(tmp_path, uncounted, change)


RECORDED, WEEK = {"kind": "recorded"}, {"kind": "week"}
SCALED = {"at": 3, "share": 0.5, "kind": "scale"}


@pytest.mark.parametrize(
    ("table", "value", "message"),
    [
        ("n_clients", 0, "[clients]: n_clients must be a whole number of at least 1"),
        ("n_clients", 10**9, "[clients]: n_clients must be a whole number of at most 10,000,000"),
        ("n_client", 3, "[clients]: unknown key 'n_client'; did you mean 'n_clients'"),
        ("tau_min", 90.0, "[clients]: tau_min must not exceed tau_max, got 90.0 > 60.0"),
        ("tau_min", "x", "[clients]: tau_min must be a finite number above 0, got 'x'"),
        ("features", {}, "[clients.features] are known of population = 'phones' only"),
        ("latency", "phones", "[clients.latency]: expected a table, got 'phones'"),
        ("latency", {"popualtion": "x"}, "unknown key 'popualtion'; did you mean 'population'"),
        ("latency__population", "fones", "[clients.latency]: unknown population"),
        ("latency__population", "trace", "[clients.latency]: missing key 'path'"),
        ("latency__sigmo", 1, "[clients.latency]: unknown key 'sigmo'; did you mean 'sigma'"),
        ("latency__sigma", -1, "[clients.latency]: sigma must be between 0 and 10"),
        ("availability", {"kind": "never"}, "[clients.availability]: unknown availability"),
        ("availability", {"start_hour": 3}, "unknown key 'start_hour'; known are kind"),
        ("availability", RECORDED, "[clients.availability]: missing key 'path'"),
        ("availability", {**RECORDED, "path": 3}, "path must be the name of a file, got 3"),
        ("availability", {**RECORDED, "path": "x"}, "x cannot be read as an .npz or"),
        ("availability", {"kind": "intervals", "path": "x.csv"}, "x.csv cannot be read"),
        ("availability", {**WEEK, "path": "x"}, "unknown key 'path'; known are kind, start_hour"),
        ("availability", {**WEEK, "start_hour": 25}, "start_hour must be between 0 and 24"),
        ("drift", {"share": 0.5}, "[clients.drift]: missing key 'at'"),
        ("drift", {"at": 3, "share": 2}, "[clients.drift]: share must be between 0 and 1"),
        ("drift", {"at": 3, "share": 0.1}, "share must be at least 2 of the 12 clients, got 0.1"),
        ("drift", SCALED, "[clients.drift]: missing key 'factor'"),
        ("failures", {"p": 1}, "[clients.failures]: unknown key 'p'"),
        ("failures", {"probability": 2}, "[clients.failures]: probability must be between 0"),
        ("failures", {"probability": 0.5, "share": -1}, "share must be between 0 and 1, got -1"),
        ("failures", {"probability": 0.5, "share": 0.01}, "share must be at least 1 of the 12"),
        ("failures", {"probability": 0.5, "base": 0.1}, "[clients.failures]: base is for"),
        ("false_reports", {"time": True}, "[clients.false_reports]: missing key 'share'"),
        ("false_reports", {"share": 1.5, "time": True}, "share must be between 0 and 1, got 1.5"),
        ("false_reports", {"share": 0.1}, "[clients.false_reports]: something must"),
        ("false_reports", {"share": 0.1, "time": "yes"}, "time must be a valid boolean"),
        ("false_reports", {"share": 0.1, "loss": 0}, "loss must be a finite number above 0"),
        ("data", {"quality": 0.5}, "quality must be a range [low, high], got 0.5"),
        ("data", {"quality": [0, 1]}, "[clients.data]: quality must be a range within (0, 1]"),
    ],
)
def test_mistakes_are_named_with_their_table(table, value, message):
    with pytest.raises(InvalidInput, match=r"^study.toml \[clients") as caught:
        parse(**{f"clients__{table}": value})
    assert message in str(caught.value)
