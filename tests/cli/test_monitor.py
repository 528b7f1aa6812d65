"""`bsfl inspect`: a saved scheduler on the terminal, as JSON and as a page."""

import json
import subprocess
import sys

import pytest

from bsfl import Observation, Scheduler
from bsfl.extras import EXTRA_OF

NASTY = "<script>alert(1)</script>[red]"


@pytest.fixture
def file(tmp_path):
    clients = [f"phone-{i}" for i in range(30)] + [NASTY, "\ud800\x1b[31m"]
    scheduler = Scheduler(cohort_size=4)
    for _ in range(40):
        cohort = scheduler.select(clients)
        responses = {c: 1.0 + clients.index(c) for c in cohort}
        responses[cohort[0]] = Observation(latency_s=60.0, outcome="timeout")
        scheduler.observe(responses)
    scheduler.save(tmp_path / "state.bsfl")
    return str(tmp_path / "state.bsfl")


def test_the_table_begins_with_the_slowest(bsfl, file):
    done = bsfl("inspect", file)
    assert done.exit_code == 0
    assert "32 members" in done.output
    lines = done.output.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("client "))
    assert lines[head].split()[:4] == ["client", "latency", "(s)", "invitations"]
    assert "12 more; --rows 0 shows all" in lines[-1]
    assert "\x1b" not in done.output
    slowest = lines[head + 1].split()[1]
    table = Scheduler.load(file).table()
    assert float(slowest) == pytest.approx(max(row["latency_s"] or 0 for row in table), rel=0.01)


@pytest.mark.parametrize("columns", [40, 80])
def test_no_number_is_cut_on_a_narrow_terminal(bsfl, file, columns):
    def cells(columns):
        lines = bsfl("inspect", file, "--client", "phone-7", COLUMNS=str(columns))
        return lines.output.splitlines()[-1].split()

    assert cells(columns) == cells(200)


def test_sorting_and_one_client(bsfl, file):
    ascending = bsfl("inspect", file, "--sort", "-participations", "--rows", "0").output
    assert NASTY in ascending, "markup is text"
    assert "more;" not in ascending
    rows = [line.split() for line in ascending.partition("client ")[2].splitlines()[1:]]
    known = {row["client"]: row["participations"] for row in Scheduler.load(file).table()}
    counts = [known[row[0]] for row in rows if row[0] in known]
    assert counts == sorted(counts)
    one = bsfl("inspect", file, "--client", "phone-7").output
    assert "phone-7 " in one
    assert "phone-8" not in one.partition("latency (s)")[2]


def test_json_has_everything(bsfl, file):
    found = json.loads(bsfl("inspect", file, "--json").output)
    scheduler = Scheduler.load(file)
    assert found["clients"] == scheduler.table()
    assert found["round"] == 40
    assert found["diagnostics"] == scheduler.diagnostics()
    assert found["last_round"]["n_timeouts"] == 1


def test_the_page_holds_all_clients(bsfl, file, tmp_path):
    page = tmp_path / "page.html"
    assert bsfl("inspect", file, "--html", page).exit_code == 0
    assert page.read_text("utf-8").count("<tr>") == 1 + 32


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sort", "age"], "--sort must be one of client, member"),
        (["--client", "nobody"], "no client 'nobody'"),
    ],
)
def test_mistakes_are_one_line(bsfl, file, words, message):
    done = bsfl("inspect", file, *words)
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert message in done.output


@pytest.mark.slow
def test_the_extra_cli_is_enough(file):
    others = [package for package, extra in EXTRA_OF.items() if extra != "cli"] + ["pandas"]
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({others!r}))\n"
        f"from bsfl.cli import main; sys.argv = ['bsfl', 'inspect', {file!r}]; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "phone-" in done.stdout
