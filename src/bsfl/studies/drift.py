"""Memories that fade, when a third of the fleet changes speed."""

import numpy as np

from bsfl.analysis.statistics import interval
from bsfl.records import FloatArray
from bsfl.runs import Results
from bsfl.studies.ablations import Ablation, Found, Row


class Drift(Ablation):
    """How much time do memories that fade lose, when a third of the fleet changes speed?"""

    scenarios = ("ablation-drift", "ablation-steady")

    def rows(self, found: Found) -> list[Row]:
        """Compare the time lost after a change with that of the policy that never forgets."""
        drift, steady = found["ablation-drift"], found["ablation-steady"]
        change, end = drift.scenario.fleet.drift, drift.scenario.rounds
        assert change
        half = change.at - 1

        def time_s(results: Results, label: str, first: int, last: int) -> FloatArray:
            return np.array([r["duration_s"][first:last].sum() for r in results.records(label)])

        def lost_s(label: str) -> FloatArray:
            return time_s(drift, label, half, end) - time_s(steady, label, half, end)

        rows: list[Row] = []
        for label in drift.scenario.policies:
            after = time_s(drift, label, half, end)
            afresh = time_s(steady, label, 0, end - half)
            rows.append(
                {
                    "policy": label,
                    "before (s)": interval(time_s(drift, label, 0, half)),
                    "after (s)": interval(after),
                    "lost by the change (s)": interval(lost_s(label)),
                    "lost, over stationary": interval(lost_s(label) / lost_s("stationary")),
                    "after, over starting afresh": interval(after / afresh),
                }
            )
        return rows
