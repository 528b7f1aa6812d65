"""Which policy may go on from a file."""

import pytest

from bsfl import BSFL, Discounted, Lognormal, Means, Scheduler, Windowed
from bsfl.errors import NotAStateFile, StateFileError
from bsfl.policies import CsUcb, CsUcbQ, FedCS, RbcsF, TiFL
from bsfl.saving import statefile
from bsfl.saving.saved_policy import described, policy_of


@pytest.mark.parametrize(
    ("saved", "given"),
    [
        ({}, {"index": Lognormal()}),
        ({"index": Lognormal()}, {}),
        ({}, {"memory": Discounted(0.98)}),
        ({}, {"memory": Windowed(50)}),
        ({"memory": Windowed(50)}, {"memory": Windowed(20)}),
    ],
)
def test_a_memory_is_only_read_as_it_was_written(tmp_path, saved, given):
    scheduler = Scheduler(BSFL(**saved), cohort_size=2)
    scheduler.join(range(5))
    for _ in range(5):
        scheduler.observe({k: 1.0 + k for k in scheduler.select()})
    scheduler.save(tmp_path / "s")
    (setting,) = saved.keys() | given.keys()
    with pytest.raises(StateFileError, match=f"saved with {setting}="):
        Scheduler.load(tmp_path / "s", policy=BSFL(**given))
    assert Scheduler.load(tmp_path / "s", policy=BSFL(alpha=7.0, **saved)).policy.alpha == 7.0


def test_settings_that_a_file_lacks_had_their_defaults():
    header = described(BSFL(alpha=3.0))
    for setting in ("index", "memory"):
        del header["settings"][setting]
    assert policy_of(header, "old", None) == BSFL(alpha=3.0)
    assert policy_of(header, "old", BSFL(alpha=7.0)).alpha == 7.0


def test_a_memory_is_guarded_when_functions_are_the_users_own(tmp_path):
    def wide(count, *, t, m, variance):
        return 2.0 / count

    memory, index = Discounted(0.9), Means(radius=wide)
    Scheduler(BSFL(index=index, memory=memory), cohort_size=2).save(tmp_path / "s")
    with pytest.raises(StateFileError, match="saved with memory={'kind': 'discounted'"):
        Scheduler.load(tmp_path / "s", policy=BSFL(index=index))
    again = Scheduler.load(tmp_path / "s", policy=BSFL(index=index, memory=memory, alpha=3.0))
    assert again.policy.alpha == 3.0


@pytest.mark.parametrize(
    ("saved", "given", "setting"),
    [
        (CsUcb(tau_max=10.0), CsUcb(tau_max=20.0), "tau_max=10.0"),
        (CsUcbQ(tau_max=10.0), CsUcbQ(tau_max=20.0), "tau_max=10.0"),
        (FedCS(tau_max=10.0), FedCS(tau_max=20.0), "tau_max=10.0"),
        (TiFL(tau_max=10.0), TiFL(tau_max=10.0, tiers=3), "tiers=5"),
        (RbcsF(tau_max=9.0), RbcsF(tau_max=9.0, compute=[1.0], transfer=[1.0]), "n_features=1"),
    ],
)
def test_peers_go_on_with_what_gives_their_numbers_a_meaning(tmp_path, saved, given, setting):
    Scheduler(saved, cohort_size=2).save(tmp_path / "s")
    with pytest.raises(StateFileError, match=f"saved with {setting}, and what it remembers"):
        Scheduler.load(tmp_path / "s", policy=given)
    Scheduler.load(tmp_path / "s", policy=saved)


def test_a_model_is_no_scheduler(tmp_path):
    statefile.write(tmp_path / "m", {"version": "0.1.0"}, {})
    with pytest.raises(NotAStateFile, match="holds something else than a scheduler"):
        Scheduler.load(tmp_path / "m")
