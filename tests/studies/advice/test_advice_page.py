"""The advisor's page in a browser: the slider moves the recommendation, nothing leaves the machine."""

import json
import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from bsfl.report import Report, Section
from bsfl.report.plots import COLOURS
from bsfl.studies.advice.show import floor_section, sizes_table, trials_table
from bsfl.studies.advice.trials import Setting, Trial

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
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


def trial(policy, options, seconds, share, over_selection=1.0):
    numbers = {"mean_round_s": seconds, "for_as_many_s": seconds, "responses": 2.0}
    numbers |= {"min_participation": share, "gini": 0.1, "fair_count": 1e6, "invited": 2.0}
    values = {k: v * np.array([0.99, 1.0, 1.01]) for k, v in numbers.items()}
    plan = {"cohort_size": 2, "over_selection": over_selection, "deadline_s": 9.0}
    return Trial(Setting(policy=policy, options=options, **plan), 10, values)


@pytest.fixture
def report():
    chance = trial("random", {}, 8.0, 0.7)
    trials = [
        chance,
        trial("pace", {}, 3.0, 0.2),
        trial("pace", {"min_participation": 0.8}, 5.0, 0.8),
        trial("bsfl", {"alpha": 100.0}, 7.0, 0.95),
    ]
    section = floor_section(trials, 0.5, [chance] * 4)
    tables = [trials_table(trials, trials[2]), sizes_table(trials)]
    return Report(title="<b>log</b>", numbers={}, sections=[section], tables=tables)


def in_browser(page, folder):
    path = folder / "report.html"
    path.write_text(page)
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync"
    quiet = "--disable-background-networking --disable-component-update --enable-logging=stderr"
    run = subprocess.run(
        [
            CHROMIUM,
            *flags.split(),
            *quiet.split(),
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={folder / 'browser'}",
            "--virtual-time-budget=20000",
            "--dump-dom",
            path.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=240,
    )
    return run.stdout, [line for line in run.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_the_slider_moves_the_recommendation(report, tmp_path):
    probe = Section(question="", html='<p id="probe"></p>', script=PROBE)
    page = replace(report, sections=[*report.sections, probe]).page()
    drawn, said = in_browser(page, tmp_path)
    assert said == []
    low, middle, high = json.loads(re.search(r'<p id="probe">(.*?)</p>', drawn)[1])
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


def test_nobody_saves_more_than_all():
    slow, quick = trial("random", {}, 8.0, 0.7), trial("pace", {}, 3.0, 0.2)
    quick.numbers["for_as_many_s"][:] = 0.5, 3.0, 7.9
    assert quick.saved(slow).high == 1.0


def test_texts_are_texts(report):
    page = report.page()
    assert "<b>log</b>" not in page
    assert "connect-src" not in page.partition("</head>")[0], "no request goes anywhere"
