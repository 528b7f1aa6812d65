"""The results of the advisor: sentences, and the page, whose slider moves the recommendation."""

import json
import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from bsfl.report import Report, Section
from bsfl.report.plots import COLOURS
from bsfl.studies.advice.show import floor_section, floor_words, saving, sizes_table, trials_table
from bsfl.studies.advice.trials import Setting, Trial

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-sync", "--disable-background-networking", "--disable-component-update"),
    *("--enable-logging=stderr", "--host-resolver-rules=MAP * ~NOTFOUND"),
    *("--virtual-time-budget=20000", "--dump-dom"),
)
PROBE = """"use strict";
{
  const seen = [], slider = document.getElementById("floor");
  const place = document.querySelector("figure[data-plot=advice] .panel");
  for (const floor of [10, 60, 99]) {
    slider.value = floor;
    slider.dispatchEvent(new Event("input"));
    const star = place.data.find((trace) => trace.legendgroup === "recommended");
    const text = (id) => document.getElementById(id).textContent;
    seen.push({ floor: text("floor-shown"), code: text("advice-code"), warning: text("advice-warning"),
      saving: text("advice-saving"), x: star.x[0], y: star.y[0], rule: place.layout.shapes[0].x0,
      hover: star.text[0], colour: star.marker.color });
  }
  document.getElementById("probe").textContent = JSON.stringify(seen);
}
"""


def trial(policy, seconds, share, fair_count=1e6, **options):
    numbers = {"mean_round_s": seconds, "for_as_many_s": seconds, "responses": 2.0}
    numbers |= {"min_participation": share, "gini": 0.1, "fair_count": fair_count, "invited": 2.0}
    values = {k: v * np.array([0.99, 1.0, 1.01]) for k, v in numbers.items()}
    setting = Setting(policy=policy, options=options, cohort_size=2, deadline_s=9.0)
    return Trial(setting, 10, values)


@pytest.fixture
def report():
    chance = trial("random", 8.0, 0.7)
    trials = [
        chance,
        trial("pace", 3.0, 0.2),
        trial("pace", 5.0, 0.8, min_participation=0.8),
        trial("bsfl", 7.0, 0.95, alpha=100.0),
    ]
    section = floor_section(trials, 0.5, [chance] * 4)
    tables = [trials_table(trials, trials[2]), sizes_table(trials)]
    return Report(title="<b>log</b>", numbers={}, sections=[section], tables=tables)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_the_slider_moves_the_recommendation(report, tmp_path):
    probe = Section(question="", html='<p id="probe"></p>', script=PROBE)
    path = tmp_path / "report.html"
    path.write_text(replace(report, sections=[*report.sections, probe]).page())
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'browser'}", path.as_uri()]
    run = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert "CONSOLE" not in run.stderr
    low, middle, high = json.loads(re.search(r'<p id="probe">(.*?)</p>', run.stdout)[1])
    assert [low["x"], low["y"], low["rule"]] == pytest.approx([0.2, 3.0, 0.1])
    assert low["floor"] == "10 %"
    assert "Scheduler(Pace(tau_max=9.0), cohort_size=2)" in low["code"]
    assert "saves 62 %" in low["saving"], "1 - 3 / 8"
    assert [middle["x"], middle["y"]] == pytest.approx([0.8, 5.0])
    assert middle["warning"] == ""
    assert "Pace(min_participation=0.8" in middle["code"]
    assert "Pace(min_participation=0.8)" in middle["hover"]
    assert [low["colour"], high["colour"]] == [*COLOURS[:2]], "those of pace and bsfl"
    assert high["x"] == pytest.approx(0.95)
    assert high["warning"] == "No setting keeps this floor; this one comes closest."


def test_the_page_holds_the_best_for_every_floor_and_texts_are_texts(report):
    content = json.loads(report.sections[0].html.partition('id="advice">')[2].split("</script>")[0])
    # pace is fastest up to 20 %, with a floor up to 80 %, and bsfl is the fairest above
    assert content["by_floor"] == [1] * 21 + [2] * 60 + [3] * 20
    assert [one["keeps"] for one in content["trials"]] == [70, 20, 80, 95]
    page = report.page()
    assert "<b>log</b>" not in page
    assert "connect-src" not in page.partition("</head>")[0], "no request goes anywhere"


def test_the_note_of_a_table_says_what_was_read():
    trials = [trial("random", 5.0, 0.5)]
    assert trials_table(trials, trials[0], "6 rows").note == "*: recommended. The log: 6 rows"


def test_a_ratio_that_is_accepted_for_the_floor_is_explained():
    coarse = trial("random", 5.0, 0.7, fair_count=8.0)
    (words,) = floor_words(coarse, 0.8)  # 0.8 - 1/8 = 0.675
    assert words.startswith("A minimum participation of 70 % is accepted for a floor of 80 %: ")
    assert "in 10 rounds is 8.0, and one round is 12 % of it." in words
    assert floor_words(coarse, 0.69) == []
    assert "No setting keeps every client at 90 %" in floor_words(coarse, 0.9)[0]


def test_more_time_is_explained_by_a_higher_participation():
    plain, best, slow = (trial("random", *x) for x in ((5.0, 0.3), (6.0, 0.82), (9.0, 0.66)))
    first, second = saving(best, slow, plain)
    assert "in return" not in first
    assert second == (
        "It takes 20 % (20 to 20 %) more time than random selection with the same invitations and "
        "deadline; in return, the minimum participation is 82 % instead of 30 %."
    )
    assert "in return" not in saving(slow, best, best)[0], "slower and less fair"
