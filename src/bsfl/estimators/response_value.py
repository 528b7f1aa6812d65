r"""Estimates the fairness exponent f from losses: a regression of log loss on participation.

A client's training loss is that of the global model, as received, on the client's data. If the
model fits clients that train often better, other clients have larger losses: log loss falls with
x = ln((c + 1) / (e + 1)), where c counts the participations of a client and e is its fair count.
The value of a client is ((e + 1) / (c + 1))^f with f = -2 x the slope of log loss on x: the squared
loss that it is expected to have.
"""

from dataclasses import dataclass

import numpy as np

from bsfl._core.state import ROUNDS, number
from bsfl.errors import InvalidInput
from bsfl.types import FloatArray, RoundContext, RoundReport
from bsfl.validation import LARGEST

LOSS_POWER = 2.0
"""Value is this power of the loss."""
DEFAULT_EXPONENT = 3.0
"""f if no losses are reported, or if they do not fall as the model learns."""
PRIOR_EXPONENT, PRIOR_SQUARES = 0.3, 20.0
"""f before any losses, and the sum of squares that this prior is worth.

Without it a small f early on would keep selecting the same clients, whose x no longer differ.
"""
MAX_EXPONENT = 5.0
"""Largest f: nearly equal numbers of rounds for all clients."""
FORGETTING_FACTOR = 0.98
"""Factor of the sums of earlier rounds, per round."""
TREND_SPAN = 60.0
"""Step size of the trends for n losses: n / (n + TREND_SPAN).

With a slower trend, losses that fall early in training would look like an effect of participation.
"""
MAX_DEVIATION = float(np.log(10.0))
"""Losses are clipped at ten times what is expected, or a tenth: a false report moves little."""
N_INITIAL = 20
"""Number of initial losses that are averaged as the baseline."""
TEST_AFTER = 100, 20
"""Losses, and rounds, after which losses must have fallen."""
Z_FALL = 4.0
"""Standard errors by which losses must have fallen."""
MIN_MEMORY_ROUNDS, MEMORY_RESPONSES = 20, 200
"""The value per second is averaged over this many rounds, and over at least this many responses."""
MIN_VALUE_PER_SECOND = 1e-80
"""Smallest value per second, if no client has responded for very long."""
LOG_LOSS_RANGE = -750.0, 30.0
"""Range of the logarithm of a loss above 0."""
MAX_X = 25.0
"""Largest size of x: ln 2^30 is 20.8."""
MAX_SQUARES = 1e25
"""Largest sum of squares or products: far more than cohorts of any size come to."""
MAX_VALUE_PER_SECOND = 1e125
"""Largest value per second: the largest gain in the smallest latency, and more."""


@dataclass(slots=True, kw_only=True)
class LossTrend:
    """The regression of log loss on participation x.

    Attributes:
        t, n_rounds: Round of the last losses, and in how many rounds there were any.
        squares, products: Sums of squares of x, and of products of x and log loss: deviations from
            the means of a cohort, and of these means from the trends.
        x, loss: The trends.
        initial: Mean log loss of the first losses.
        n_losses: How many losses were reported.
        spread, weight: Squared deviations of log losses from the trend, and how many they are.
    """

    t: int = number(0, high=ROUNDS)
    n_rounds: int = number(0, high=ROUNDS)
    squares: float = number(0.0, low=0.0, high=MAX_SQUARES)
    products: float = number(0.0, low=-MAX_SQUARES, high=MAX_SQUARES)
    x: float = number(0.0, low=-MAX_X, high=MAX_X)
    loss: float = number(0.0, *LOG_LOSS_RANGE)
    initial: float = number(0.0, *LOG_LOSS_RANGE)
    n_losses: int = 0
    spread: float = number(0.0, low=0.0, high=MAX_SQUARES)
    weight: float = number(0.0, low=0.0, high=LARGEST)

    def check(self) -> None:
        """Check that reported losses have a weight."""
        if self.n_losses and self.weight <= 0:
            raise InvalidInput("weight must be above 0 where losses were reported")


def learn(trend: LossTrend, x: FloatArray, loss: FloatArray, t: int) -> None:
    """Learn from the losses of clients that responded in round t; NaN: not reported."""
    known = np.isfinite(loss) & (loss > 0)
    if not known.any():
        return
    x, y, n = x[known], np.log(loss[known]), int(np.count_nonzero(known))
    mean_x = float(x.mean())
    if trend.n_losses == 0:
        trend.x, trend.loss = mean_x, float(np.median(y))
    low, high = LOG_LOSS_RANGE
    expected = np.clip(
        trend.loss + slope(trend) * (x - trend.x), low + MAX_DEVIATION, high - MAX_DEVIATION
    )
    y = np.clip(y, expected - MAX_DEVIATION, expected + MAX_DEVIATION)
    mean_y = float(y.mean())
    if trend.n_losses < N_INITIAL:
        trend.initial += (mean_y - trend.initial) * n / (trend.n_losses + n)
    trend.n_losses += n
    if t > trend.t:
        for name in ("squares", "products", "spread", "weight"):
            setattr(trend, name, FORGETTING_FACTOR * getattr(trend, name))
        trend.t = t
        trend.n_rounds += 1
    dx, dy, step_x, step_y = x - mean_x, y - mean_y, mean_x - trend.x, mean_y - trend.loss
    trend.squares += float(dx @ dx) + n * step_x**2
    trend.products += float(dx @ dy) + n * step_x * step_y
    trend.spread += float(dy @ dy) + n * step_y**2
    trend.weight += n
    rate = n / (n + TREND_SPAN)
    trend.x += rate * step_x
    trend.loss += rate * step_y


def exponent(trend: LossTrend) -> float:
    """Return f."""
    n_losses, n_rounds = TEST_AFTER
    is_testable = trend.n_losses > n_losses and trend.n_rounds > n_rounds
    if trend.n_losses == 0 or (is_testable and not losses_fall(trend)):
        return DEFAULT_EXPONENT
    return float(np.clip(-LOSS_POWER * slope(trend), 0.0, MAX_EXPONENT))


def slope(trend: LossTrend) -> float:
    """Return the slope of log loss on x, shrunk to the prior."""
    prior = -PRIOR_EXPONENT / LOSS_POWER * PRIOR_SQUARES
    return (trend.products + prior) / (trend.squares + PRIOR_SQUARES)


def losses_fall(trend: LossTrend) -> bool:
    """Return whether losses have fallen significantly, so that they carry information."""
    noise = trend.spread / trend.weight
    return trend.initial - trend.loss > Z_FALL * float(np.sqrt(noise / N_INITIAL))


@dataclass(slots=True, kw_only=True)
class ValueRate:
    """Discounted sums of value and time.

    Attributes:
        gain, time_s: Value of responses, and the seconds they took.
        round, round_s, n_kept: The latest round that was reported, how long it has lasted, and how
            many responses have entered the model in it.
    """

    gain: float = number(0.0, low=0.0, high=1e110)
    time_s: float = number(0.0, low=0.0, high=1e30)
    round: int = number(0, high=ROUNDS)
    round_s: float = number(0.0, low=0.0, high=1e12)
    n_kept: int = 0

    def check(self) -> None:
        """Check that the value per second is a number that others can be multiplied with."""
        if self.time_s and self.per_second > MAX_VALUE_PER_SECOND:
            raise InvalidInput("time_s must be above 0 where responses have brought value")

    @property
    def is_known(self) -> bool:
        """Whether any response has brought value and taken time."""
        return bool(self.gain and self.time_s)

    @property
    def per_second(self) -> float:
        """Value per second, 0 before the first response."""
        return self.gain / self.time_s if self.time_s else 0.0


def learn_rate(
    rate: ValueRate, context: RoundContext, report: RoundReport, latency_s: FloatArray, gain: float
) -> None:
    """Add the value of responses, and the seconds that the round waited for the slowest.

    If the target is reached, only responses that enter the model prolong a round; otherwise
    timeouts and failures do, too. A round of one client takes the latency of that client. Responses
    to an earlier round take their fraction of a round of m.

    Args:
        rate: What was learned so far.
        context, report: As given to a policy's `observe`.
        latency_s: Seconds that each result stands for; NaN: not known.
        gain: Sum of the values of the responses that enter the model.
    """
    m = context.target_responses
    if context.round > rate.round:
        fade = 1.0 - 1.0 / max(MIN_MEMORY_ROUNDS, MEMORY_RESPONSES / m)
        rate.gain *= fade
        rate.time_s *= fade
        rate.round, rate.round_s, rate.n_kept = context.round, 0.0, 0
    kept, is_latest = report.usable, context.round == rate.round
    rate.n_kept += int(np.count_nonzero(kept)) if is_latest else 0
    target_is_reached = is_latest and rate.n_kept >= m
    is_dropped = report.responded & report.dropped
    prolonging = kept if target_is_reached else ~is_dropped
    waited_s = latency_s[prolonging & ~np.isnan(latency_s)]
    longest_s = float(waited_s.max(initial=0.0))
    rate.gain += gain
    if context.n_invited == 1:
        rate.time_s += float(waited_s.sum())
    elif is_latest:
        rate.time_s += max(longest_s - rate.round_s, 0.0)
        rate.round_s = max(longest_s, rate.round_s)
    elif kept.any():  # of an earlier round, whose responses may come one at a time
        rate.time_s += longest_s * min(1.0, len(waited_s) / m)
