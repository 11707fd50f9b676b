"""Plans of covers, over any fleet: bounded, fair to the riskiest, and steady."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from swarm_leader.domain.covers.facts import CoverMode, CoverPlan, StageToCover, Standby
from swarm_leader.domain.covers.plan import STICKY_RISK, plan_covers
from swarm_leader.domain.covers.risk import UNKNOWN, FellowHealth, risk_of

KEYS = [(placement, index) for placement in "ab" for index in range(3)]
MODES = st.sampled_from([CoverMode.AUTO, CoverMode.HOT, CoverMode.WARM])
keys = st.frozensets(st.sampled_from(KEYS))
sizes = st.integers(1, 40)
POOLS = ["attic", "cellar"]
pools = st.frozensets(st.sampled_from(POOLS), min_size=1)
stages = st.lists(
    st.builds(StageToCover, st.sampled_from(KEYS), st.floats(0, 1), sizes, sizes, pools),
    unique_by=lambda stage: stage.key,
)


@st.composite
def fleets(draw: st.DrawFn) -> list[Standby]:
    """Up to four standbys, each with covers that it may or may not be able to hold now."""
    fleet = []
    for name in draw(st.lists(st.sampled_from("wxyz"), unique=True)):
        covers = {key: draw(st.booleans()) for key in draw(keys)}
        free, disk = draw(st.none() | st.integers(0, 100)), draw(st.none() | st.integers(0, 100))
        held, pool = draw(st.integers(0, 2)), draw(st.sampled_from(POOLS))
        fleet.append(Standby(name, free, disk, draw(keys), draw(keys), covers, held, pool))
    return fleet


def carried_out(asked: list[StageToCover], fleet: list[Standby], plan: CoverPlan) -> list[Standby]:
    """The fleet once it holds what was planned and nothing else, with the files of new warm covers on its disks."""
    warm_bytes = {stage.key: stage.warm_bytes for stage in asked}

    def after(one: Standby) -> Standby:
        held = {key: is_hot for key, (holder, is_hot) in plan.holders.items() if holder == one.fellow_id}
        fetched = sum(warm_bytes[key] for key, is_hot in held.items() if not is_hot and key not in one.covers)
        disk = None if one.disk_free_bytes is None else one.disk_free_bytes - fetched
        return replace(one, covers=held, disk_free_bytes=disk)

    return [after(one) for one in fleet]


@given(stages, fleets(), MODES)
def test_every_cover_is_on_a_fellow_that_can_hold_it_within_its_memory(asked, fleet, mode):
    plan = plan_covers(asked, fleet, mode)
    needed = {stage.key: stage.hot_bytes for stage in asked}
    by_name = {one.fellow_id: one for one in fleet}
    taken = dict.fromkeys(by_name, 0)
    for key, (name, is_hot) in plan.holders.items():
        assert key in needed and key in (by_name[name].hot if is_hot else by_name[name].warm)
        assert mode is CoverMode.AUTO or mode is (CoverMode.HOT if is_hot else CoverMode.WARM)
        taken[name] += needed[key] if is_hot else 0

    assert all(taken[name] <= (one.free_bytes or 0) for name, one in by_name.items())


@given(stages, fleets(), MODES)
def test_no_cover_leaves_the_pools_of_its_ring(asked, fleet, mode):
    """Whatever stands there already, and however risky the stage."""
    plan = plan_covers(asked, fleet, mode)
    pools_of = {stage.key: stage.pools for stage in asked}
    pool_of = {one.fellow_id: one.pool for one in fleet}

    assert all(pool_of[name] in pools_of[key] for key, (name, _) in plan.holders.items())


@given(stages, fleets(), MODES)
def test_machines_of_other_pools_change_nothing_in_a_plan(asked, fleet, mode):
    inside = [replace(stage, pools=frozenset({"attic"})) for stage in asked]
    of_the_pool = [one for one in fleet if one.pool == "attic"]

    assert plan_covers(inside, fleet, mode) == plan_covers(inside, of_the_pool, mode)


@given(stages, fleets(), MODES)
def test_a_plan_that_was_carried_out_is_planned_again(asked, fleet, mode):
    plan = plan_covers(asked, fleet, mode)

    assert plan_covers(asked, carried_out(asked, fleet, plan), mode) == plan


@given(stages, fleets(), MODES, st.randoms())
def test_the_order_of_facts_changes_nothing(asked, fleet, mode, random):
    shuffled = random.sample(asked, len(asked)), random.sample(fleet, len(fleet))

    assert plan_covers(*shuffled, mode) == plan_covers(asked, fleet, mode)


@given(stages, fleets())
def test_no_stage_is_hot_in_the_place_of_a_clearly_riskier_one(asked, fleet):
    plan = plan_covers(asked, fleet, CoverMode.AUTO)
    by_key = {stage.key: stage for stage in asked}
    hot = {key: name for key, (name, is_hot) in plan.holders.items() if is_hot}
    for one in fleet:
        here = [by_key[key] for key, name in hot.items() if name == one.fellow_id]
        left = (one.free_bytes or 0) - sum(stage.hot_bytes for stage in here)
        for held in here:
            for other in asked:
                fits = one.can_hold(other, is_hot=True) and other.hot_bytes <= left + held.hot_bytes
                clearly_riskier = other.risk > held.risk + STICKY_RISK
                assert other.key in hot or not fits or not clearly_riskier


def test_a_hot_cover_that_stands_stays_though_another_fellow_is_roomier():
    stage = StageToCover(("a", 0), 0.5, 10, 10)
    able = frozenset({stage.key})
    tight = Standby("tight", 10, hot=able, covers={stage.key: True})
    roomy = Standby("roomy", 1000, hot=able)

    assert plan_covers([stage], [roomy, tight], CoverMode.AUTO).holders == {stage.key: ("tight", True)}
    assert plan_covers([stage], [roomy], CoverMode.AUTO).holders == {stage.key: ("roomy", True)}


def test_what_does_not_fit_in_memory_is_warm_and_off_is_nothing():
    stage = StageToCover(("a", 0), 0.5, 100, 10)
    able = frozenset({stage.key})
    small = Standby("small", 50, hot=able, warm=able)
    full = Standby("full", 50, 5, hot=able, warm=able)

    assert plan_covers([stage], [small], CoverMode.AUTO).holders == {stage.key: ("small", False)}
    assert plan_covers([stage], [small], CoverMode.HOT).holders == {}
    assert plan_covers([stage], [full], CoverMode.AUTO).holders == {}
    assert plan_covers([stage], [small], CoverMode.OFF).holders == {}


def test_unknown_memory_holds_nothing_hot():
    stage = StageToCover(("a", 0), 0.5, 1, 1)
    unknown = Standby("u", None, hot=frozenset({stage.key}), warm=frozenset({stage.key}))

    assert plan_covers([stage], [unknown], CoverMode.AUTO).holders == {stage.key: ("u", False)}


def test_a_fellow_nobody_knows_is_of_middling_risk_and_a_bad_one_of_more():
    assert risk_of(FellowHealth(), 1) == UNKNOWN
    assert risk_of(FellowHealth("A", 1.0), 1) < UNKNOWN < risk_of(FellowHealth("D"), 1)
    assert risk_of(FellowHealth("A", 0.2), 1) == 0.8
    assert risk_of(FellowHealth(), 3) > risk_of(FellowHealth(), 2) > risk_of(FellowHealth(), 1)
    assert risk_of(FellowHealth(flaps=9), 9) == 1.0
