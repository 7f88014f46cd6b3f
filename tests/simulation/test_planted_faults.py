"""Each fault that is planted in brokers and controllers is found by a simulation within 1,000 seeds.

The seeds with which the searches begin have found the faults before: `millrace_support.simulation.planted_faults`.
"""

import pytest

from millrace.errors import SetupError
from millrace_support.simulation import release_faults
from millrace_support.simulation.planted_faults import FAULTS, find, hints
from millrace_support.simulation.releases.releases import former_release


@pytest.mark.timeout(3600)  # where the seed that found a fault shows nothing any more, hundreds may have to be played
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name, record_property):
    if name in release_faults.FAULTS:
        try:
            former_release()
        except SetupError as error:
            pytest.skip(str(error))
    seed = find(name, hints().get(name, 0))
    record_property("seed", seed)
    assert seed is not None


def test_a_seed_that_shows_nothing_any_more_is_no_end_of_the_search(monkeypatch):
    monkeypatch.setattr("millrace_support.simulation.planted_faults.MOST_SEEDS", 5)
    assert find("acknowledges_before_the_others_have_it", 4) is not None
