r"""How much more a client teaches that took part less: an exponent, learned from losses.

A client's training loss is that of the global model on its data as it meets it. Where the model
knows its regulars by heart, the losses of others are higher: log loss falls with
x = ln((c + 1) / (e + 1)), c the answers that a client gave and e its fair number of them. The value
of a client is ((e + 1) / (c + 1))^f with f = -2 x the slope of log loss on x: the squared loss that
it is expected to have.
"""

from dataclasses import dataclass

import numpy as np

from bsfl.errors import InvalidInput
from bsfl.records import FloatArray
from bsfl.state import number

POWER = 2.0
"""Value is read as this power of the loss."""
EVEN = 3.0
"""f where no losses are told, or none that fall as the model learns."""
PRIOR, PRIOR_SQUARES = 0.3, 20.0
"""f before losses have told it, and the sum of squares that this is worth.

Without it a small f early on would keep to the same clients, whose x no longer differ.
"""
HIGHEST = 5.0
"""Largest f: equal numbers of rounds for all, but for the last per cent."""
FORGET = 0.98
"""What a round leaves of the sums before it."""
SPAN = 60.0
"""How far n answers move the trends: by n / (n + SPAN).

Slower, and losses that fall while a model is young would look like those of clients known by heart.
"""
FAR = float(np.log(10.0))
"""A loss ten times what is expected, or a tenth of it, counts as that: who lies moves little."""
N_FIRST = 20
"""Losses that tell what they began with."""
DOUBTED = 100, 20
"""Losses, and rounds, after which they must have fallen."""
SURE = 4.0
"""Standard errors by which losses must have fallen to be believed."""


@dataclass(slots=True, kw_only=True)
class LossTrend:
    """The regression of log loss on participation x.

    Attributes:
        t, n_rounds: Round of the last losses, and in how many rounds there were any.
        squares, products: Sums of squares of x, and of products of x and log loss: deviations from
            the means of a cohort, and of these means from the trends.
        x, loss: The trends.
        first: Mean log loss of the first clients that told it.
        n_told: How many losses were told.
        spread, weight: Squared deviations of log losses from the trend, and how many they are.
    """

    t: int = 0
    n_rounds: int = 0
    squares: float = number(0.0, low=0.0)
    products: float = 0.0
    x: float = 0.0
    loss: float = 0.0
    first: float = 0.0
    n_told: int = 0
    spread: float = number(0.0, low=0.0)
    weight: float = number(0.0, low=0.0)

    def check(self) -> None:
        """Check that losses that were told left a weight."""
        if self.n_told and self.weight <= 0:
            raise InvalidInput("weight must be above 0 where losses were told")


def learn(trend: LossTrend, x: FloatArray, loss: FloatArray, t: int) -> None:
    """Take in the losses of clients that answered in round t; NaN: not told."""
    told = np.isfinite(loss) & (loss > 0)
    if not told.any():
        return
    x, y, n = x[told], np.log(loss[told]), int(np.count_nonzero(told))
    mean_x = float(x.mean())
    if trend.n_told == 0:
        trend.x, trend.loss = mean_x, float(np.median(y))
    expected = trend.loss + slope(trend) * (x - trend.x)
    y = np.clip(y, expected - FAR, expected + FAR)
    mean_y = float(y.mean())
    if trend.n_told < N_FIRST:
        trend.first += (mean_y - trend.first) * n / (trend.n_told + n)
    trend.n_told += n
    if t > trend.t:
        for name in ("squares", "products", "spread", "weight"):
            setattr(trend, name, FORGET * getattr(trend, name))
        trend.t = t
        trend.n_rounds += 1
    dx, dy, step_x, step_y = x - mean_x, y - mean_y, mean_x - trend.x, mean_y - trend.loss
    trend.squares += float(dx @ dx) + n * step_x**2
    trend.products += float(dx @ dy) + n * step_x * step_y
    trend.spread += float(dy @ dy) + n * step_y**2
    trend.weight += n
    rate = n / (n + SPAN)
    trend.x += rate * step_x
    trend.loss += rate * step_y


def exponent(trend: LossTrend) -> float:
    """Return f."""
    n_losses, n_rounds = DOUBTED
    doubted = trend.n_told > n_losses and trend.n_rounds > n_rounds
    if trend.n_told == 0 or (doubted and not losses_fall(trend)):
        return EVEN
    return float(np.clip(-POWER * slope(trend), 0.0, HIGHEST))


def slope(trend: LossTrend) -> float:
    """Return the slope of log loss on x, drawn towards the prior."""
    prior = -PRIOR / POWER * PRIOR_SQUARES
    return (trend.products + prior) / (trend.squares + PRIOR_SQUARES)


def losses_fall(trend: LossTrend) -> bool:
    """Return whether losses have fallen by more than chance, so that they tell what is known."""
    noise = trend.spread / trend.weight
    return trend.first - trend.loss > SURE * float(np.sqrt(noise / N_FIRST))
