"""Every policy and component that comes with bsfl, in many settings."""

from itertools import cycle, product

from bsfl import (
    AFL,
    BSFL,
    AgeBased,
    CsUcb,
    CsUcbQ,
    Discounted,
    F3ast,
    FedCS,
    Lognormal,
    Luo,
    MaxGini,
    MinParticipation,
    Oort,
    Pace,
    Pisces,
    RbcsF,
    Refl,
    SlidingWindow,
    TiFL,
    UcbCs,
    UCBIndex,
)
from bsfl.errors import InvalidInput
from bsfl.estimators.confidence import CONFIDENCE_WIDTHS
from bsfl.estimators.generalization import DEFICITS
from bsfl.estimators.moments import CumulativeMean
from bsfl.policies import POLICIES, make_policy
from bsfl.policies.rbcs_f import MIN_RIDGE
from bsfl.policy import check_forgettable
from bsfl.solvers import SOLVERS
from bsfl.types import LATENCY_RANGE

SHORT_S, LONG_S = LATENCY_RANGE


def registered():
    """Return every policy of the registry by name, with its example settings."""
    return {name: make_policy(name, **POLICIES[name].example) for name in POLICIES}


def bsfl_variants():
    """Return BSFL with every combination of components; the solvers take turns."""
    indices = [UCBIndex(confidence_width=width) for width in CONFIDENCE_WIDTHS]
    indices.append(Lognormal(quantile=0.9))
    memories = [CumulativeMean(), Discounted(0.9), SlidingWindow(10)]
    weights = [(3.0, name) for name in DEFICITS]
    weights += product([MinParticipation(0.6), MaxGini(0.2)], ["equal", "opportunity"])
    solvers = cycle(["exact", "exhaustive", "exact", *SOLVERS])
    found = {}
    for index, memory, (alpha, deficit) in product(indices, memories, weights):
        solver, number = next(solvers), len(found)
        found[f"{index}-{memory}-{alpha}-{deficit}-{solver}"] = BSFL(
            alpha=alpha,
            generalization=deficit,
            index=index,
            memory=memory,
            solver=solver,
            tau_max=[None, 20.0][number % 2],
            beta=1 + number % 3,
        )
    return found


def pace_variants():
    """Return Pace with every combination of a few settings."""
    names = ("fairness", "min_participation", "tau_max")
    choices = product([None, 0.0, 1.0, 2.0], [0.0, 0.8, 1.0], [None, 20.0])
    return {f"pace-{values}": Pace(**dict(zip(names, values, strict=True))) for values in choices}


def extreme_variants():
    """Return policies with settings at their limits; most learn or change in every round."""
    most = 1e100
    policies = [
        BSFL(alpha=0.0, tau_max=SHORT_S, memory=Discounted(0.0)),
        BSFL(alpha=MaxGini(0.0), memory=SlidingWindow(2)),
        BSFL(index=Lognormal(quantile=0.01), tau_max=SHORT_S, memory=Discounted(0.0)),
        Pace(fairness=0.0, tau_max=SHORT_S),
        CsUcb(tau_max=SHORT_S, exploration=0.0),
        CsUcbQ(tau_max=SHORT_S, beta=0.0, phi=0.0, exploration=0.0),
        RbcsF(tau_max=SHORT_S, latency_weight=0.0, exploration=0.0, ridge=MIN_RIDGE, phi=0.0),
        UcbCs(gamma=1e-9, sigma=0.0),
        FedCS(tau_max=SHORT_S),
        Oort(tau_max=SHORT_S, percentile=0.0, pacer_rounds=1, penalty=0.0, clip=0.0, cut_off=0.0),
        Oort(pacer_step=0.0, pacer_rounds=1, explore=0.0, explore_min=0.0),
        TiFL(tau_max=SHORT_S, rounds=1, tiers=1, interval=1),
        TiFL(tau_max=4.0, rounds=3, tiers=3, interval=1),
        AgeBased(tau_max=SHORT_S),
        AFL(drop=0.0, temperature=0.0, uniform=0.0),
        F3ast(step=0.0),
        Refl(history=0.0, stay=1e-9),
        Luo(tau_max=SHORT_S, speed=0.0, least=1e-300),
        Pisces(penalty=0.0),
        BSFL(alpha=most, beta=10**15, tau_max=LONG_S, memory=Discounted(1.0)),
        BSFL(alpha=MinParticipation(1.0), memory=SlidingWindow(10**15)),
        BSFL(index=Lognormal(quantile=0.999, optimism=most), tau_max=LONG_S),
        Pace(fairness=5.0, min_participation=1.0, tau_max=LONG_S),
        CsUcb(tau_max=LONG_S, exploration=most),
        CsUcbQ(tau_max=LONG_S, beta=1.0, phi=1.0, exploration=most),
        RbcsF(tau_max=LONG_S, latency_weight=most, exploration=most, ridge=most, phi=0.999),
        UcbCs(gamma=1.0 - 1e-9, sigma=most),
        FedCS(tau_max=LONG_S, candidates=1),
        Oort(tau_max=LONG_S, percentile=100.0, penalty=100.0, clip=1.0, cut_off=1.0),
        Oort(pacer_step=100.0, pacer_rounds=10**15, explore=1.0, explore_decay=1.0),
        TiFL(tau_max=LONG_S, rounds=10**15, tiers=1000, interval=10**15),
        AgeBased(tau_max=LONG_S),
        AFL(drop=1.0, temperature=most, uniform=1.0),
        F3ast(step=1.0),
        F3ast(step=0.5),
        Refl(history=1.0, stay=most),
        Luo(tau_max=LONG_S, speed=10.0, least=1.0),
        Pisces(penalty=100.0),
    ]
    return {f"{i}-{policy!r}"[:60]: policy for i, policy in enumerate(policies)}


def is_forgettable(policy):
    """Return whether clients of a policy can be forgotten."""
    try:
        check_forgettable(policy)
    except InvalidInput:
        return False
    return True
