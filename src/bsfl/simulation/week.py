r"""Phone-like weeks: when phones are idle, charged and on Wi-Fi, and for how long.

A public week of 710 phones: online 9.5 % of the time on average, the median phone 5.5 %, all
together 6.5 to 13.7 % by hour of the day. The chance to stay another 300 s is 0.41 on arrival,
0.66 after a minute, 0.90 after half an hour. Three laws reproduce that.

How long a visit lasts. Some are brief, the others long:

    S(d) = P(D > d) = w exp(-d / a) + (1 - w) exp(-d / b),

whose hazard decreases. After half an hour only long ones are left, so exp(-300 / b) = 0.90 and
b = 300 / ln(1 / 0.90) = 2,847 s. The other two facts, S(300) = 0.41 and S(360) / S(60) = 0.66,
then give w = 0.546 and a = 49.5 s.

How often a phone is online. Its share p of the time is gamma distributed. With shape 0.70 the
median is 0.582 of the mean; what one week shows of a phone scatters around its p, which lowers
the median by another 1.5 %, to 0.573; p is cut off at 60 %, which costs the mean 0.8 %. So a mean
of 9.58 % before the cut gives 9.5 %, and 5.5 % in the middle.

When visits begin. Let p f(s) be the share at time s, with x = 2 pi (hour - peak) / 24 and

    f(s) = 1 + A cos x + B cos 2x.

The highest and the lowest hour ask for 1 + A + B = 13.7 / 9.5 and 1 - A + B = 6.5 / 9.5, which
gives A = 0.379 and B = 0.063. If visits begin at the rate p g(s) / E[D], then

    p f(s) = p / E[D] int_0^inf g(s - d) S(d) dd.

So visits smooth a wave of frequency v and delay it; both are in the complex factor

    h(v) = int_0^inf S(d) exp(-i v d) dd / E[D]
         = (w a / (1 + i v a) + (1 - w) b / (1 + i v b)) / E[D],

and the waves of g are those of f, each over its h. A client that is online cannot come; an
offline one comes with the hazard (p g(s) / E[D]) / (1 - p f(s)).

Not reproduced: all days are alike; whole nights are rare, as FLASH's phones stay for another half
hour with probability 0.76 and these with 0.57; 6 % never come in a week, of FLASH's 29 %.
"""

import numpy as np
import numpy.typing as npt

from bsfl import validation
from bsfl.simulation.intervals import DAY_S, HOUR_S, WEEK_S, Intervals
from bsfl.types import FloatArray, IntArray, Rng

BRIEF_SHARE, BRIEF_S, LONG_S = 0.546, 49.5, 2847.0
"""w, a and b."""
MEAN_VISIT_S = BRIEF_SHARE * BRIEF_S + (1 - BRIEF_SHARE) * LONG_S

MEAN_SHARE, SHARE_SHAPE = 0.0958, 0.70
"""Mean and shape of the gamma distribution of p."""
MAX_SHARE = 0.6
"""Largest p: at the highest hour 0.87, so that every client leaves at times."""

PEAK_HOUR = 5.0
"""Hour of the day at which most phones are online, as in FLASH's data."""
MINUTE_S = 60.0


def _by_minute() -> tuple[FloatArray, FloatArray]:
    """Return f and g for every minute of a day."""
    waves = np.array([13.7 - 6.5, 13.7 + 6.5 - 2 * 9.5]) / (2 * 9.5)  # A and B
    frequency = 2 * np.pi * np.arange(1, 3) / DAY_S
    brief = BRIEF_SHARE * BRIEF_S / (1 + 1j * frequency * BRIEF_S)
    long = (1 - BRIEF_SHARE) * LONG_S / (1 + 1j * frequency * LONG_S)
    smoothing = (brief + long) / MEAN_VISIT_S
    since_peak_s = np.arange(0.0, DAY_S, MINUTE_S) + MINUTE_S / 2 - PEAK_HOUR * HOUR_S
    turns: npt.NDArray[np.complex128] = np.exp(1j * np.outer(since_peak_s, frequency))
    return 1 + np.real(turns @ waves), 1 + np.real(turns @ (waves / smoothing))


ONLINE_BY_MINUTE, ARRIVALS_BY_MINUTE = _by_minute()


def phone_week(n_clients: int, rng: Rng, *, start_hour: float = 0.0) -> Intervals:
    """Return clients that are online as phones are over one week, which then repeats.

    All clients are offline when the week begins, except for visits that run over its end: they
    continue at its beginning, in place of those that began there meanwhile.

    Args:
        start_hour: Hour of the first day at which the virtual clock starts.
    """
    validation.between("start_hour", start_hour, 0.0, 24.0)
    share = np.minimum(rng.gamma(SHARE_SHAPE, MEAN_SHARE / SHARE_SHAPE, n_clients), MAX_SHARE)
    client, start, end = visits(share, rng)
    continues_until = np.zeros(n_clients)
    np.maximum.at(continues_until, client, end - WEEK_S)
    kept = start >= continues_until[client]
    offsets = np.append(0, np.cumsum(np.bincount(client[kept], minlength=n_clients)))
    return Intervals(start[kept], end[kept], offsets, WEEK_S, HOUR_S * start_hour)


def visits(share: FloatArray, rng: Rng) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return client, start and end of all visits that begin within a week, client by client.

    The hazard to come is drawn by thinning: candidates come at its upper bound, and each counts
    with the ratio of the two.
    """
    bound = hazard(share, online=ONLINE_BY_MINUTE.max(), arrivals=ARRIVALS_BY_MINUTE.max())
    found = []
    client, now = np.arange(len(share)), np.zeros(len(share))
    while len(client):
        now = now + rng.standard_exponential(len(client)) / bound[client]
        client, now = client[now < WEEK_S], now[now < WEEK_S]
        minute = (now % DAY_S // MINUTE_S).astype(np.int64)
        rate = hazard(
            share[client], online=ONLINE_BY_MINUTE[minute], arrivals=ARRIVALS_BY_MINUTE[minute]
        )
        comes = rng.random(len(client)) * bound[client] < rate
        mean_s = np.where(rng.random(int(comes.sum())) < BRIEF_SHARE, BRIEF_S, LONG_S)
        end = now[comes] + mean_s * rng.standard_exponential(len(mean_s))
        found.append((client[comes], now[comes], end))
        now[comes] = end
    clients, starts, ends = (np.concatenate(column) for column in zip(*found, strict=True))
    order = np.argsort(clients, kind="stable")
    return clients[order], starts[order], ends[order]


def hazard(
    share: FloatArray, *, online: float | FloatArray, arrivals: float | FloatArray
) -> FloatArray:
    """Return (p g / E[D]) / (1 - p f), the rate at which offline clients come."""
    return share * arrivals / MEAN_VISIT_S / (1 - share * online)
