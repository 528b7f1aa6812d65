"""Pages in a real browser: drawn without errors or requests, and texts stay texts."""

import json

import pytest

from bsfl import Observation, Scheduler
from bsfl.dashboard.inspect import inspected_page
from bsfl.experiments import run_scenario
from bsfl.html import SHOWN
from bsfl.report import scenario_report
from journal_entries import of_100_000_clients
from served import served
from small_scenario import parse

pytestmark = pytest.mark.slow

NASTY = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"
WIDTHS, SCHEMES = (1400, 390), ("light", "dark")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    pytest.importorskip("plotly")
    folder = tmp_path_factory.mktemp("report")
    results = run_scenario(parse(title=NASTY), folder, jobs=1)
    scenario_report(results).write(folder)
    return (folder / "report.html").as_uri()


def trained(clients, rounds, **options):
    scheduler = Scheduler(cohort_size=4, **options)
    for _ in range(rounds):
        cohort = scheduler.select(available=list(clients))
        responses = {client: clients[client] for client in cohort}
        responses[cohort[0]] = Observation(latency_s=60.0, outcome="timeout")
        scheduler.observe(responses)
    return scheduler


@pytest.fixture(scope="module")
def inspected(tmp_path_factory):
    clients = {f"phone-{i}": 1.0 + i % 50 for i in range(3 * SHOWN)} | {NASTY: 9.0}
    scheduler = trained(clients, 120)
    path = tmp_path_factory.mktemp("inspect") / "page.html"
    path.write_text(inspected_page("server.bsfl", scheduler.summary(), scheduler.table()), "utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    path = tmp_path_factory.mktemp("watch") / "rounds.jsonl"
    clients = {f"phone-{i}": 1.0 + i for i in range(20)} | {NASTY: 9.0}
    return path, clients, trained(clients, 40, journal=path)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_is_drawn_without_errors_or_requests(
    visit, report, inspected, journal, width, scheme
):
    with served(journal[0]) as live:
        for url, n_panels in ((report, 7), (inspected, 0), (live, 0)):
            with visit(url, width, scheme) as seen:
                assert seen.page.locator(".lead").inner_text().endswith(".")
                seen.page.wait_for_function(
                    "n => document.querySelectorAll('.panel .main-svg').length >= n", arg=n_panels
                )
                assert seen.said == []
                assert seen.overflow() == 0, f"{url} is wider than {width} pixels"
                outside = [one for one in seen.asked if not one.startswith(("data:", "blob:", url))]
                assert outside == []
                assert seen.page.locator("img, main script:not([type])").count() == 0
                paper = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
                assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(21, 24, 28)"}[scheme]


def test_names_with_markup_are_text(visit, report, inspected, journal):
    with visit(report) as seen:
        assert seen.page.locator("h1").inner_text() == NASTY
        assert seen.page.title() == NASTY
    with visit(inspected) as seen:
        seen.page.get_by_label("find by name").fill("onerror")
        assert seen.column(1) == [NASTY]
    with served(journal[0]) as live, visit(live) as seen:
        seen.page.get_by_label("find a client by its id").fill(NASTY)
        seen.page.get_by_role("button", name="find").click()
        seen.page.wait_for_load_state()
        assert seen.page.locator("#found h3").inner_text() == NASTY
        assert seen.said == []


def test_a_head_sorts_by_the_better_end_first_and_then_the_other_way(visit, report):
    with visit(report) as seen:
        head = seen.page.locator("thead th", has_text="mean_round_s")
        place = 1 + seen.page.locator("thead th").all_inner_texts().index(head.inner_text())

        def numbers():
            return [float(cell.split()[0]) for cell in seen.column(place)]

        head.get_by_role("button").click()
        assert numbers() == sorted(numbers())
        assert head.get_attribute("aria-sort") == "ascending"
        head.get_by_role("button").press("Enter")  # the keyboard will do
        assert numbers() == sorted(numbers(), reverse=True)
        assert head.get_attribute("aria-sort") == "descending"


def test_a_legend_hides_a_policy_in_all_panels(visit, report):
    with visit(report) as seen:
        figure = seen.page.locator("figure[data-plot=time]")
        lines = figure.locator(".scatterlayer .trace")
        before = lines.count()
        figure.get_by_role("button", name="bsfl").click()
        seen.page.wait_for_function(
            "n => document.querySelectorAll('figure[data-plot=time] .trace').length < n", arg=before
        )
        assert figure.get_by_role("button", name="bsfl").get_attribute("aria-pressed") == "false"


def test_a_long_table_shows_some_and_sorts_and_finds_all(visit, inspected):
    with visit(inspected) as seen:
        assert len(seen.column(1)) == SHOWN
        assert f"{SHOWN} of {3 * SHOWN + 1} rows" in seen.page.locator(".tools").inner_text()
        seen.page.get_by_role("button", name="client").click()
        assert seen.column(1)[:3] == [NASTY, "phone-0", "phone-1"], "numbers within names count"
        seen.page.get_by_label("find by name").fill("phone-29")
        assert seen.column(1) == ["phone-29", *(f"phone-29{i}" for i in range(10))]
        seen.page.get_by_label("find by name").fill("")
        seen.page.get_by_role("button", name="show more").click()
        assert len(seen.column(1)) == 3 * SHOWN + 1


def test_the_live_page_follows_a_federation_and_keeps_how_it_was_sorted(visit, journal):
    path, clients, scheduler = journal
    with served(path) as live, visit(live) as seen:
        table = seen.page.locator("[data-name=stragglers]")
        table.get_by_role("button", name="rounds").click()
        mark = seen.page.locator("circle").last
        mark.click()
        seen.page.wait_for_selector("#found h3")
        before = seen.page.locator("#found").inner_text()
        assert seen.page.locator("circle.selected").count() == 1
        counted = scheduler.client(seen.page.locator("#found h3").inner_text())["invitations"]
        assert f"\n{counted}: " in before
        for _ in range(3):
            cohort = scheduler.select(available=list(clients))
            scheduler.observe(dict.fromkeys(cohort, 777.0))
        seen.page.wait_for_function(
            "words => document.querySelector('#part-headline').innerText.includes(words)",
            arg=f"Round {scheduler.round} took 777 s and waited for",
        )
        seen.page.wait_for_function(
            "name => [...document.querySelectorAll('#part-durations title')].at(-1)"
            ".textContent.startsWith(name)",
            arg=f"round {scheduler.round}: 777 s",
        )
        head = seen.page.locator("[data-name=stragglers] th[aria-sort]")
        assert head.inner_text().startswith("rounds")
        assert seen.page.locator("#found h3").inner_text() in before
        assert seen.page.locator("circle.selected").count() == 1
        assert seen.page.locator("#live").inner_text().startswith("live, as of")
        assert seen.said == []


def test_a_live_page_says_that_its_server_is_gone(visit, journal):
    with served(journal[0]) as live, visit(live) as seen:
        seen.page.route("**/*", lambda route: route.abort())
        seen.page.wait_for_function(
            "() => document.querySelector('#live').innerText.includes('out of date')"
        )


def test_100_000_clients_are_a_density_and_can_be_searched(visit, tmp_path):
    path = tmp_path / "rounds.jsonl"
    with path.open("w") as file:
        for entry in of_100_000_clients():
            file.write(json.dumps({"v": 1, **entry}, separators=(",", ":")) + "\n")
    with served(path) as live, visit(f"{live}/?client=77777", width=390) as seen:
        assert "Density of 100,000 clients" in seen.page.locator("#part-clients").inner_text()
        assert seen.page.locator("#found h3").inner_text() == "77777"
        assert seen.overflow() == 0
        assert seen.said == []
