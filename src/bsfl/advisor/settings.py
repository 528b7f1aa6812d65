"""The settings that the advisor tries: policies with their settings, invitations and deadlines."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy as np

from bsfl._core.registry import REQUIRED
from bsfl.errors import InvalidInput
from bsfl.policies import POLICIES, Policy, make_policy
from bsfl.types import FloatArray, OverSelection, max_invited

RANDOM = "random"
MIN_PARTICIPATIONS = (0.3, 0.5, 0.65, 0.8, 0.9)
"""Minimum participation of Pace and BSFL."""
WEIGHTS = (0.02, 0.1, 0.5, 2.0, 10.0)
"""Values of BSFL's alpha, in units of K/m."""
OVER_SELECTIONS: tuple[OverSelection, ...] = (1.0, 1.3, "auto")
"""Invitations per target response; the first runs have the first two."""
DEADLINE_QUANTILES = (0.8, 0.95)
"""Quantiles of the latencies in the log that are tried as deadlines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A policy with its settings, and the numbers of a round.

    Attributes:
        policy: Name of the policy.
        options: Settings of the policy as plain data, without the deadline.
        cohort_size: Target responses per round.
        over_selection: Invitations per target response.
        deadline_s: Seconds after which a round closes without the pending responses.
    """

    policy: str
    options: Mapping[str, Any] = field(default_factory=dict)
    cohort_size: int
    over_selection: OverSelection = 1.0
    deadline_s: float

    def made(self) -> Policy:
        """Return the policy."""
        has_deadline = "tau_max" in POLICIES.settings(self.policy)
        deadline = {"tau_max": self.deadline_s} if has_deadline else {}
        return make_policy(self.policy, **deadline, **self.options)

    def words(self) -> str:
        """Return the policy as code, without defaults and deadline."""
        return code_of(self.made(), without=("tau_max",))

    def code(self) -> str:
        """Return lines of code that create the scheduler."""
        policy = self.made()
        parts = {type(getattr(policy, one.name)) for one in _changed(policy)}
        names = {one.__name__ for one in parts if one.__module__.startswith("bsfl")}
        imports = ", ".join(sorted({type(policy).__name__, *names, "Scheduler"}))
        numbers: dict[str, Any] = {"cohort_size": self.cohort_size}
        numbers |= {} if self.over_selection == 1.0 else {"over_selection": self.over_selection}
        numbers |= {} if hasattr(policy, "tau_max") else {"deadline_s": self.deadline_s}
        given = ", ".join(f"{name}={value!r}" for name, value in numbers.items())
        return f"from bsfl import {imports}\n\nscheduler = Scheduler({code_of(policy)}, {given})"

    @property
    def label(self) -> str:
        """The policy with its options, as the name of a folder."""
        options = re.sub(r"[^\w.+-]+", "-", json.dumps(self.options)).strip("-")
        return f"{self.policy}-{options}".strip("-")

    @property
    def plan(self) -> str:
        """The numbers of a round, as the name of a folder."""
        return f"m-{self.cohort_size}-invite-{self.over_selection}-deadline-{self.deadline_s!r}-s"

    @property
    def key(self) -> tuple[str, str]:
        """The setting as text, for comparison."""
        return self.plan, self.label


def _changed(policy: Any) -> list[Any]:
    return [one for one in fields(policy) if getattr(policy, one.name) != one.default]


def code_of(value: Any, without: Sequence[str] = ()) -> str:
    """Return a value as code; a dataclass without its defaults.

    >>> from bsfl import BSFL, Lognormal
    >>> code_of(BSFL(alpha=3.0, index=Lognormal(quantile=0.8)))
    'BSFL(alpha=3.0, index=Lognormal(quantile=0.8))'
    """
    if not is_dataclass(value):
        return repr(value)
    given = ((x.name, getattr(value, x.name)) for x in _changed(value) if x.name not in without)
    words = ", ".join(f"{name}={code_of(argument)}" for name, argument in given)
    return f"{type(value).__name__}({words})"


def fitting(cohort_size: int, n_clients: int) -> list[OverSelection]:
    """Return the over-selections with which no more clients are invited than there are."""
    return [one for one in OVER_SELECTIONS if max_invited(one, cohort_size) <= n_clients]


def first_settings(
    plan: Setting, n_clients: int, floor: float, policies: Sequence[str] | None = None
) -> list[Setting]:
    """Return every policy that a log can evaluate with several settings, all with one plan.

    Policies that need losses or sample sizes are left out, because a log of latencies does not show
    their benefit. So are policies with required settings other than a deadline.
    """
    floors = sorted({*MIN_PARTICIPATIONS, round(floor, 3)} - {0.0, 1.0})
    weights: list[dict[str, Any]] = [
        {"alpha": round(weight * n_clients / plan.cohort_size, 3)} for weight in WEIGHTS
    ]
    weights += [{"alpha": {"kind": "min-participation", "share": one}} for one in floors]
    tail = {"index": {"kind": "lognormal"}}
    options: dict[str, list[dict[str, Any]]] = {
        "pace": [{}, *({"min_participation": one} for one in floors)],
        "bsfl": [*({**one, **tail} for one in weights), *weights[: len(WEIGHTS)]],
    }
    found = []
    for name in policies or [one for one in POLICIES if can_evaluate(one)]:
        for candidate in options.get(name, [{}, *POLICIES[name].search_space]):
            setting = replace(plan, policy=name, options=candidate)
            try:
                setting.made()
            except InvalidInput:
                if policies:
                    raise
                continue
            found.append(setting)
    return found


def can_evaluate(name: str) -> bool:
    """Return whether a policy can be evaluated on a log of latencies."""
    policy = POLICIES[name]
    required = {k for k, v in POLICIES.settings(name).items() if v is REQUIRED} - {"tau_max"}
    return not (required or policy.is_oracle or make_policy(name, **policy.example).needs)


def varied(
    setting: Setting, invitations: Sequence[OverSelection], deadlines: Sequence[float]
) -> Iterator[Setting]:
    """Yield a setting with other invitations and deadlines, and with other weights."""
    for over_selection in invitations:
        for deadline_s in deadlines:
            yield replace(setting, over_selection=over_selection, deadline_s=deadline_s)
    alpha = setting.options.get("alpha")
    if isinstance(alpha, float):
        for factor in (0.5, 2.0):
            yield replace(setting, options={**setting.options, "alpha": round(factor * alpha, 3)})


def deadlines_from(latencies: FloatArray, deadline_s: float) -> list[float]:
    """Return the deadline of the log and shorter ones, rounded to two digits."""
    found = [float(f"{np.quantile(latencies, q):.2g}") for q in DEADLINE_QUANTILES]
    return [deadline_s, *(one for one in found if 0 < one < 0.9 * deadline_s)]
