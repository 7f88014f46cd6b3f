"""Each seed draws its own settings and its own mix of faults; together the seeds have them all."""

from random import Random

from millrace_support.simulation.faults.playing import FAULTS
from millrace_support.simulation.swarm.mix import Mix
from millrace_support.simulation.swarm.settings import Settings

SEEDS = range(200)


def test_each_kind_of_fault_is_missing_in_some_seeds():
    mixes = [Mix.drawn(Random(seed), FAULTS) for seed in SEEDS]
    assert all(mix.weights for mix in mixes)
    for kind in FAULTS:
        assert {kind in mix.weights for mix in mixes} == {True, False}
    assert any(mix.weights.keys() == FAULTS.keys() for mix in mixes)


def test_a_mix_picks_what_it_has():
    chance = Random(1)
    mix = Mix({"kill": 1, "cut": 4}, longest_pause_s=1.0, longest_s=4.0)
    picked = [mix.pick(chance) for _ in range(500)]
    assert picked.count("cut") > 2 * picked.count("kill") > 0
    assert set(picked) == {"kill", "cut"}


def test_settings_are_what_the_seed_decides():
    settings = [Settings.drawn(Random(seed)) for seed in SEEDS]
    assert settings == [Settings.drawn(Random(seed)) for seed in SEEDS]
    assert {one.replicas for one in settings} == {1, 2, 3, 5}
    assert {one.loses_anything for one in settings} == {True, False}


def test_no_more_replicas_are_needed_than_there_are():
    settings = next(one for one in (Settings.drawn(Random(seed)) for seed in SEEDS) if one.min_isr == 3)
    assert [settings.least_holders(replicas) for replicas in (1, 2, 3, 5)] == [1, 2, 3, 3]
