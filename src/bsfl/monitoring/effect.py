"""What one policy changes against another one, from rounds in which the two alternated."""

import math
import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bsfl._core.engine import Engine
from bsfl.errors import InvalidInput
from bsfl.estimators.switchback import MIN_PAIRS, Block, randomization_interval
from bsfl.monitoring.journal import Entry, read_journal
from bsfl.monitoring.words import figure
from bsfl.policies.alternating import Alternating
from bsfl.types import FloatArray

HINT = "select with Scheduler(Alternating(Pace(), UniformRandom()), ...)"


@dataclass(frozen=True, slots=True)
class Difference:
    """A number of the first policy, of the second, and their difference with a 95 % interval."""

    first: float
    second: float
    difference: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What one policy changes against another one; print it.

    It says how long rounds take and how many responses they bring, not which policy leads to the
    better model: both train the same one. Both learn from all responses.

    Attributes:
        policies: The first policy and the second one.
        n_pairs: Pairs of blocks of rounds; each pair has a block of both policies.
        round_s: Mean duration of a round, seconds.
        responses_per_s: Responses that entered the model, per second.
        speed_up: How many times as long a round of the second policy takes, and the 95 % interval.
    """

    policies: tuple[str, str]
    n_pairs: int
    round_s: Difference
    responses_per_s: Difference
    speed_up: tuple[float, float, float]

    def as_json(self) -> dict[str, Any]:
        """Return plain numbers, None for what is not known."""

        def plain(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: plain(one) for key, one in value.items()}
            if isinstance(value, tuple | list):
                return [plain(one) for one in value]
            return None if isinstance(value, float) and not math.isfinite(value) else value

        return dict(plain(asdict(self)))

    def __str__(self) -> str:
        first, second = self.policies
        if not self.n_pairs:
            return f"There is no pair of blocks of {first} and {second} yet."
        pairs = f"{self.n_pairs} pair{'s' * (self.n_pairs > 1)} of blocks"
        lines = [
            f"{first} against {second}, {pairs}:",
            _line("seconds per round", self.round_s),
            _line("responses per second", self.responses_per_s),
        ]
        middle, low, high = self.speed_up
        if self.n_pairs < MIN_PAIRS:
            lines.append(f"  An interval needs {MIN_PAIRS} pairs of blocks.")
        elif low <= 1.0 <= high:
            lines.append(
                f"  Rounds are {middle:.2f} times as fast with {first}, which is not significant "
                f"(95 % interval {low:.2f} to {high:.2f})."
            )
        else:
            lines.append(
                f"  Rounds are {middle:.2f} times as fast with {first} "
                f"(95 % interval {low:.2f} to {high:.2f})."
            )
        return "\n".join(lines)


def _line(name: str, one: Difference) -> str:
    line = f"  {name:<21}{figure(one.first)} against {figure(one.second)}"
    if math.isfinite(one.low):
        line += f", difference {one.difference:+.3g} ({one.low:+.3g} to {one.high:+.3g})"
    return line


def scheduler_effect(engine: Engine) -> Effect:
    """Return the effect that the blocks of a scheduler show."""
    policy = engine.policy
    if not isinstance(policy, Alternating):
        raise InvalidInput(f"effect needs two policies that alternate: {HINT}")
    names = repr(policy.first), repr(policy.second)
    return effect_of(policy.blocks(engine.policy_state), names)


def journal_effect(journal: str | os.PathLike[str]) -> Effect:
    """Return the effect that the rounds in a journal show."""
    blocks = JournalBlocks()
    for entry in read_journal(journal):
        blocks.add(entry)
    found = blocks.effect()
    if found is None:
        raise InvalidInput(
            f"{journal} holds no round that one of two alternating policies selected: {HINT}"
        )
    return found


@dataclass(slots=True)
class _Round:
    """A round in a journal: which policy selected, its duration and its responses."""

    arm: dict[str, Any]
    duration_s: float | None = None
    n_responses: int = 0


class JournalBlocks:
    """Collects the blocks of two alternating policies from the entries of a journal.

    Late responses count until a round of a later block closes. Of a round that was run again after
    a restart the later entries count.
    """

    def __init__(self) -> None:
        self._rounds: dict[int, _Round] = {}
        self._latest = 0

    def add(self, entry: Entry) -> None:
        """Add an entry."""
        kind, number = entry["kind"], entry.get("round", 0)
        if kind == "opened" and "arm" in entry:
            self._rounds[number] = _Round(entry["arm"])
        one = self._rounds.get(number)
        if one is None:
            return
        if kind == "closed":
            self._latest = one.arm["block"]
            if entry.get("duration_s") is not None:
                one.duration_s = entry["duration_s"]
                one.n_responses += len(entry["aggregated"])
        elif kind == "responses" and entry["is_late"] and not entry["dropped"]:
            one.n_responses += entry["outcome"].count("ok") * (one.arm["block"] == self._latest)

    def effect(self) -> Effect | None:
        """Return the effect that the rounds show; None: no policies alternate."""
        if not self._rounds:
            return None
        by_block: dict[int, list[_Round]] = defaultdict(list)
        for one in self._rounds.values():
            if one.arm["counts"] and one.duration_s is not None:
                by_block[one.arm["block"]].append(one)
        blocks = [
            Block(
                number=number,
                arm=members[0].arm["which"],
                n_rounds=len(members),
                total_s=sum(one.duration_s or 0.0 for one in members),
                n_responses=sum(one.n_responses for one in members),
            )
            for number, members in sorted(by_block.items())
        ]
        names = {one.arm["which"]: one.arm["policy"] for one in self._rounds.values()}
        other = "the other policy"
        return effect_of(blocks, (names.get(0, other), names.get(1, other)))


def effect_of(blocks: Iterable[Block], policies: tuple[str, str]) -> Effect:
    """Return the effect that blocks show; those whose pair is incomplete are left out."""
    pairs: dict[int, dict[int, Block]] = defaultdict(dict)
    for block in blocks:
        if block.n_rounds and block.total_s > 0:
            pairs[block.number // 2][block.arm] = block
    both = [(pair[0], pair[1]) for pair in pairs.values() if len(pair) == 2]
    n_rounds, total_s, n_responses = (
        np.array([[getattr(one, name) for one in pair] for pair in both], float).reshape(-1, 2)
        for name in ("n_rounds", "total_s", "n_responses")
    )
    round_s = total_s / n_rounds
    ratio = np.log(round_s[:, 1] / round_s[:, 0])
    middle = float(ratio.mean()) if both else math.nan
    low, high = randomization_interval(ratio)
    return Effect(
        policies=policies,
        n_pairs=len(both),
        round_s=_difference(round_s),
        responses_per_s=_difference(n_responses / total_s),
        speed_up=(math.exp(middle), math.exp(low), math.exp(high)),
    )


def _difference(values: FloatArray) -> Difference:
    """Return the difference of two numbers that are known of every pair, [pair, policy]."""
    first, second = values.mean(axis=0).tolist() if len(values) else (math.nan, math.nan)
    low, high = randomization_interval(values[:, 0] - values[:, 1])
    return Difference(first, second, first - second, low, high)
