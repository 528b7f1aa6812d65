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
    scenario = parse(clients__drift={"at": 4, "share": 0.5})
    latency = scenario.clients.build(0).latency
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


def test_clients_may_live_as_a_file_or_a_week_says(tmp_path):
    (tmp_path / "lives.csv").write_text("client,start_s,end_s\na,3600,7200\n")
    part = 'kind = "intervals"\npath = "lives.csv"\nperiod_s = 86400\nstart_hour = 1.5'
    text = SMALL.replace("[objective]", f"[clients.availability]\n{part}\n\n[objective]")
    (tmp_path / "own.toml").write_text(text)
    clients = read_scenario(tmp_path / "own.toml").simulated_clients(0)
    # everyone follows the one record: at half past one they have been there for half an hour
    assert clients.online_s(0.0).tolist() == [1800.0] * 12
    assert len(clients.available(1, 1800.0)) == 0
    week = parse(clients__availability={"kind": "week", "start_hour": 5.0}).clients.build(0)
    assert week.availability.origin_s == 5 * 3600
    assert parse().clients.build(0).online_s(0.0) is None


TRACE = "client,latency_s\na,1\nb,2\nb,3\nc,4\nd,5\n"
LIVES = "client,start_s,end_s\n" + "".join(f"{name},0,3600\n" for name in "abcde")


def uncounted(tmp_path, *parts):
    """Return a file that says nothing of the number of clients."""
    text = SMALL.replace("n_clients = 12\n", "")
    for old, new in parts:
        text = text.replace(old, new)
    (tmp_path / "own.toml").write_text(text)
    return tmp_path / "own.toml"


def test_files_say_how_many_clients_there_are(tmp_path):
    (tmp_path / "log.csv").write_text(TRACE)
    (tmp_path / "lives.csv").write_text(LIVES)
    np.save(tmp_path / "states.npy", np.ones((3, 6), dtype=np.int8))
    rng = np.random.default_rng(0)
    owner = np.repeat([f"phone-{k}" for k in range(7)], 10)
    np.savez(tmp_path / "data.npz", x=rng.normal(size=(70, 2)), y=np.arange(70) % 2, client=owner)
    trace = ('population = "lognormal"', 'population = "trace"\npath = "log.csv"')
    kind = "[clients.availability]\nkind = {}\n\n[objective]"
    lives = ("[objective]", kind.format('"intervals"\npath = "lives.csv"'))
    states = ("[objective]", kind.format('"recorded"\npath = "states.npy"'))
    data = ("[objective]", '[learning]\ndataset = "data.npz"\n\n[objective]')
    for parts, n_clients in (
        ([trace], 4),
        ([lives], 5),
        ([states], 6),
        ([data], 7),
        ([trace, data, lives], 4),
    ):
        scenario = read_scenario(uncounted(tmp_path, *parts))
        assert scenario.clients.n_clients == n_clients
        assert scenario.simulated_clients(0).n_clients == n_clients
        assert scenario.plain()["clients"]["n_clients"] == n_clients, "the manifest says it"
    names = read_scenario(uncounted(tmp_path, trace)).simulated_clients(0).ids
    assert sorted(names) == ["a", "b", "c", "d"], "each of the trace once"
    with pytest.raises(InvalidInput, match=r"own.toml \[clients\]: missing key 'n_clients'"):
        read_scenario(uncounted(tmp_path))
    for table, part in (("latency", 'population = "trace"'), ("availability", 'kind = "recorded"')):
        old = 'population = "lognormal"' if table == "latency" else "[objective]"
        new = part if table == "latency" else f"[clients.availability]\n{part}\n[objective]"
        for path, message in (
            ("", "missing key 'path'|path must be"),
            ("path = 3", "path must be"),
        ):
            with pytest.raises(InvalidInput, match=rf"\[clients.{table}\]: ({message})"):
                read_scenario(uncounted(tmp_path, (old, new.replace(part, f"{part}\n{path}"))))
    with pytest.raises(InvalidInput, match=r"\[clients\]: n_clients must be a whole number"):
        parse(clients__n_clients=0)
