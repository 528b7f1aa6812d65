"""Results of settings that are given, and the advisor's report of them."""

import numpy as np

from bsfl.report import Report
from bsfl.studies.advice.show import floor_section, sizes_table, trials_table
from bsfl.studies.advice.trials import Setting, Trial


def trial(policy, seconds, share, fair_count=1e6, **options):
    """Return a trial with about these numbers for three seeds."""
    numbers = {"mean_round_s": seconds, "for_as_many_s": seconds, "responses": 2.0}
    numbers |= {"min_participation": share, "gini": 0.1, "fair_count": fair_count, "invited": 2.0}
    values = {k: v * np.array([0.99, 1.0, 1.01]) for k, v in numbers.items()}
    setting = Setting(policy=policy, options=options, cohort_size=2, deadline_s=9.0)
    return Trial(setting, 10, values)


def advice_report(title):
    """Return a report: pace is fastest, with a floor it takes longer, and bsfl is the fairest."""
    chance = trial("random", 8.0, 0.7)
    trials = [
        chance,
        trial("pace", 3.0, 0.2),
        trial("pace", 5.0, 0.8, min_participation=0.8),
        trial("bsfl", 7.0, 0.95, alpha=100.0),
    ]
    section = floor_section(trials, 0.5, [chance] * 4)
    tables = [trials_table(trials, trials[2]), sizes_table(trials)]
    return Report(title=title, numbers={}, sections=[section], tables=tables)
