"""report.html: complete, offline, and safe against markup in names."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from bsfl.experiments import run_scenario
from bsfl.report import scenario_report
from bsfl.report.scenario import MAX_BARS, in_order, learned_speeds
from small_scenario import parse

MARKUP = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    scenario = parse(title=f"A title with {MARKUP}")
    results = run_scenario(scenario, tmp_path_factory.mktemp("page"), jobs=1)
    scenario_report(results).write(results.folder)
    return results


def test_the_page_holds_everything_loads_nothing_and_markup_in_names_is_text(results):
    page, addresses = (results.folder / "report.html").read_text(), []

    class Addresses(HTMLParser):
        def handle_starttag(self, tag, attrs):
            addresses.extend((tag, value) for name, value in attrs if name in ("src", "href"))

    Addresses().feed(page)
    assert addresses == [("link", "data:,")], "an empty icon, so that none is asked for"
    outside = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert outside.count("<figure ") == 4, "time, regret, participation, speeds"
    for word in ("virtual seconds", "&#34;n_clients&#34;: 12", "numpy"):
        assert word in outside
    assert "<img" not in outside
    assert "&lt;img src=x onerror=alert(1)&gt;" in outside


def test_learned_speeds_by_hand(results):
    clients = results.scenario.clients.build(0)
    seen = [
        clients.tau_min / min(clients.latencies(int(r["round"]), 0.0)[5], clients.tau_max)
        for r in results.run("plain", 0).records
        if 5 in r["cohort"]
    ]
    speeds = learned_speeds(results, "plain", results.simulated_clients(0))
    assert speeds.count[5] == len(seen)
    assert speeds.mean[5] == pytest.approx(np.mean(seen))
    assert speeds.half[5] == pytest.approx(1.96 * np.std(seen, ddof=1) / len(seen) ** 0.5)
    assert speeds.truth == pytest.approx(clients.mean_speed(1))


def test_availability_by_the_clock_is_drawn_again_at_the_same_time(tmp_path):
    (tmp_path / "lives.csv").write_text("client,start_s,end_s\na,0,25\nb,10,45\n")
    lives = {"kind": "intervals", "path": str(tmp_path / "lives.csv"), "period_s": 50.0}
    latency = {"population": "lognormal", "median": 10.0, "spread": 0.0, "sigma": 0.0}
    policies = {"random": {}}
    scenario = parse(
        clients__availability=lives, clients__latency=latency, policies=policies, objective=None
    )
    results = run_scenario(scenario, tmp_path / "out", seeds=1, jobs=1)
    records = results.run("random", 0).records
    n_invited, n_lost = np.sum(records["cohort"] >= 0), records["n_timeouts"].sum()
    assert 0 < n_lost < n_invited
    speeds = learned_speeds(results, "random", results.simulated_clients(0))
    # a response takes 10 s, a lost one shows the deadline of 60 s
    expected = (n_invited - n_lost) / 10 + n_lost / 60
    assert np.nansum(speeds.mean * speeds.count) == pytest.approx(expected)


@pytest.mark.slow
def test_the_page_shows_the_data_of_the_clients(tmp_path):
    partition = {"kind": "dirichlet", "alpha": 0.3, "size_sigma": 0.5, "quality": [0.5, 1.0]}
    scenario = parse(
        rounds=3,
        seeds=1,
        objective=None,
        policies={"random": {}},
        learning={"dataset": "fashion-mnist-small", "partition": partition},
    )
    scenario_report(run_scenario(scenario, tmp_path, jobs=1)).write(tmp_path)
    split = scenario.learning.make_partition(12, seed=0)
    page = (tmp_path / "report.html").read_text()
    assert f"12 clients hold {split.sizes.min():,} to {split.sizes.max():,} samples" in page
    assert f"label skew {split.label_skew:.2f}" in page
    for part in ("quality", "label 9"):
        assert part in page
    assert (tmp_path / "data.png").stat().st_size > 10_000
    assert (tmp_path / "data.pdf").exists()
    shown = in_order(split.sizes, MAX_BARS)
    assert sorted(shown) == list(range(12)), "a few clients are all drawn"
    assert split.histogram[shown].sum(axis=1).tolist() == sorted(split.sizes)
