"""The commands that run a study: figures of the paper, ablations, the advisor."""

import pytest

from bsfl.studies import FIGURES, PAPER_SCENARIOS, STUDIES


def test_every_figure_has_a_source():
    assert set(FIGURES) < set(STUDIES)
    for name in PAPER_SCENARIOS:
        scenario = STUDIES.make("scenario", name=name).scenario(quick=True)
        assert (scenario.name, scenario.seeds) == (name, 1 if scenario.learning else 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["annealing-graph", "generalization"])
def test_small_figures(bsfl, study, name):
    result = bsfl("reproduce", name, "--out", "out")
    assert result.exit_code == 0, result.output
    assert (study / "out" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert (study / "out" / "summary.json").exists()


def test_the_help_names_the_ablations(bsfl):
    assert "One of rounds, malicious-clients, confidence-width" in bsfl("ablation", "--help").output


def test_what_another_command_wrote_is_not_replaced(bsfl, study):
    (study / "log.csv").write_text("client,latency_s\n" + "a,3.0\nb,4.0\nc,5.0\n" * 5)
    advise = ["advise", "log.csv", "--cohort-size", "1", "--rounds", "5", "--seeds", "1"]
    run = ["run", "study.toml", "--seeds", "1", "--jobs", "1"]
    assert bsfl(*run, "--out", "of-run").exit_code == 0
    assert bsfl(*advise, "--policy", "random", "--jobs", "1", "--out", "of-advise").exit_code == 0
    for words, folder in (advise, "of-run"), (run, "of-advise"):
        before = {p: p.read_bytes() for p in (study / folder).rglob("*") if p.is_file()}
        rejected = bsfl(*words, "--out", folder)
        assert rejected.exit_code == 2
        assert f"{folder} holds what another command wrote; choose another --out" in rejected.output
        assert {p: p.read_bytes() for p in before} == before
