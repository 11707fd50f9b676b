"""Which stages are lost, whom to wait for, and who holds a lost stage next."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from swarm_leader.domain import ledger as rules
from swarm_leader.domain.healing.choose import Candidate, Way, choose
from swarm_leader.domain.healing.judge import StageFacts, judge
from swarm_leader.domain.healing.refit import make_refit
from swarm_leader.domain.planning.plan import PlanRequest, ServeDefaults
from swarm_leader.domain.planning.planner import plan

from tests.unit.leader.model_facts import GIGABYTE, make_fellow, make_manifest

MANIFEST = make_manifest(layer_count=6, layer_elements=50_000_000)


def make_record(*names, **changes):
    """A ring that was loaded over these fellows, in this order."""
    ring = [make_fellow(name, **changes) for name in names]
    request = PlanRequest(fellow_ids=tuple(one.fellow_id for one in ring), context_tokens=256)
    record = rules.begin(plan(MANIFEST, ring, request), "org/tiny", "f" * 64, "p1", 1.7e9)
    return replace(record, stages=tuple(replace(stage, state="loaded") for stage in record.stages))


def choose_for(record, lost, *candidates, refused=()):
    """Who holds the lost stages next."""
    refit = make_refit(record, MANIFEST, (), rules.ask_again(record), ServeDefaults(), 0)
    return choose(record, lost, candidates, refit, refused)


def facts(**changes):
    """A stage with which nothing is wrong, but for the changes."""
    return replace(StageFacts(0, "id-a", "a", is_connected=True, is_lease_running=True), **changes)


def test_a_stage_that_is_held_and_answers_is_neither_lost_nor_waited_for():
    assert judge([facts(), facts(is_alive=True, is_complained_of=True)]).is_whole


def test_a_stage_whose_fellow_does_not_hold_it_or_gets_no_answer_is_lost():
    assert judge([facts(is_held=False)]).lost == (0,)
    assert judge([facts(is_alive=False)]).lost == (0,)


def test_a_fellow_that_is_away_has_its_lease_to_come_back():
    away = facts(is_connected=False, is_held=False)

    assert (judge([away]).lost, judge([away]).waits_for) == ((), (0,))
    assert judge([replace(away, is_lease_running=False)]).lost == (0,)


def test_a_machine_that_is_gone_for_the_leader_and_for_its_neighbour_is_lost_at_once():
    away = facts(is_connected=False, is_complained_of=True)

    assert judge([away]).lost == (0,)
    # After a start of the leader nobody has come back yet, whatever the neighbours say.
    assert judge([replace(away, is_returning=True)]).waits_for == (0,)


def test_a_fellow_that_left_before_its_stage_was_loaded_is_not_waited_for():
    assert judge([facts(is_connected=False, is_loaded=False)]).lost == (0,)


@given(st.lists(st.builds(StageFacts, st.just(0), st.just("f"), st.just("f"), *[st.booleans()] * 5, st.none())))
def test_every_stage_is_held_lost_or_waited_for_and_only_one_of_them(stages):
    numbered = [replace(stage, stage_index=index) for index, stage in enumerate(stages)]

    verdict = judge(numbered)

    assert not set(verdict.lost) & set(verdict.waits_for)
    fine = set(range(len(stages))) - set(verdict.lost) - set(verdict.waits_for)
    assert all(numbered[index].is_connected and numbered[index].is_held for index in fine)


def test_a_hot_cover_comes_first_then_the_own_fellow_then_files_then_room():
    record = make_record("a", "b")
    own = Candidate(make_fellow("b"))
    hot = Candidate(make_fellow("hot", 1 * GIGABYTE), covers={1: True})
    warm = Candidate(make_fellow("warm", 3 * GIGABYTE), covers={1: False})
    roomy = Candidate(make_fellow("roomy", 90 * GIGABYTE))
    neighbour = Candidate(make_fellow("a"), covers={1: True})
    order = []
    left = [neighbour, roomy, warm, own, hot]
    while (chosen := choose_for(record, [1], *left)).choices:
        choice = chosen.choices[1]
        order.append((choice.fellow_name, choice.way))
        left = [one for one in left if one.facts.name != choice.fellow_name]

    assert order == [("hot", Way.HOT), ("b", Way.OWN), ("warm", Way.WARM), ("roomy", Way.STANDBY)]


def test_what_was_tried_and_failed_is_not_tried_again():
    record = make_record("a", "b")
    chosen = choose_for(
        record, [1], Candidate(make_fellow("b")), Candidate(make_fellow("c")), refused={(1, "id-b"), (0, "id-c")}
    )

    assert chosen.choices[1].fellow_name == "c"


def test_a_stage_that_nobody_can_hold_says_so_fellow_by_fellow_with_numbers():
    record = make_record("a", "b")
    chosen = choose_for(
        record,
        [1],
        Candidate(make_fellow("a")),
        Candidate(make_fellow("small", GIGABYTE // 10)),
        Candidate(make_fellow("old", serve_rewire=False)),
        Candidate(make_fellow("leaving"), is_draining=True),
    )

    assert not chosen.choices
    words = chosen.missing[1]
    assert words.startswith("nobody else can hold stage 1 (layers ")
    assert "a holds another stage of it" in words
    assert "small has 0.10 GB free" in words
    assert "old lacks serve_rewire" in words
    assert "leaving is being drained" in words


def test_a_standby_that_would_evict_another_model_is_left_alone():
    record = make_record("a", "b")
    crowded = replace(make_fellow("c"), makes_room_of=("other/model",))

    assert "c would evict other/model" in choose_for(record, [1], Candidate(crowded)).missing[1]


def test_two_lost_stages_go_to_two_fellows_the_heavier_one_to_the_roomier():
    record = make_record("a", "b", "c")
    record = replace(
        record, stages=tuple(replace(s, weight_bytes=s.weight_bytes + s.stage_index) for s in record.stages)
    )
    chosen = choose_for(
        record, [1, 2], Candidate(make_fellow("d", 4 * GIGABYTE)), Candidate(make_fellow("e", 9 * GIGABYTE))
    )

    assert {choice.fellow_name for choice in chosen.choices.values()} == {"d", "e"}


def test_without_the_models_files_only_who_had_the_stage_can_have_it_again():
    record = make_record("a", "b")
    candidates = [Candidate(make_fellow("b")), Candidate(make_fellow("c"))]

    assert choose(record, [1], candidates, None).choices[1].fellow_name == "b"
    assert "left the catalog" in choose(record, [1], candidates[1:], None).missing[1]


names = st.sampled_from(["a", "b", "c", "d", "e", "f"])


@given(
    st.sets(st.integers(0, 2), min_size=1),
    st.dictionaries(
        names,
        st.tuples(
            st.integers(0, 4 * GIGABYTE),
            st.booleans(),
            st.dictionaries(st.integers(0, 2), st.booleans(), max_size=2),
            st.booleans(),
        ),
    ),
    st.sets(st.tuples(st.integers(0, 2), names.map("id-{}".format))),
    st.randoms(),
)
def test_a_choice_keeps_the_ring_whole_whatever_the_fleet(lost, fleet, refused, random):
    """One stage a fellow, nobody who is drained, was refused or lacks room, and the same choice in any order."""
    record = make_record("a", "b", "c")
    candidates = [
        Candidate(make_fellow(name, free, serve_rewire=can), is_draining, covers)
        for name, (free, can, covers, is_draining) in fleet.items()
    ]

    chosen = choose_for(record, sorted(lost), *candidates, refused=refused)

    kept = [stage.fellow_id for stage in record.stages if stage.stage_index not in lost]
    holders = [choice.stage.fellow_id for choice in chosen.choices.values()]
    assert len({*kept, *holders}) == len(kept) + len(holders)
    assert {*chosen.choices, *chosen.missing} == lost
    for index, choice in chosen.choices.items():
        free, can, covers, is_draining = fleet[choice.fellow_name]
        old = record.stages[index]
        assert (choice.stage.layer_start, choice.stage.layer_stop) == (old.layer_start, old.layer_stop)
        assert not is_draining and (index, choice.stage.fellow_id) not in refused
        if choice.way in (Way.WARM, Way.STANDBY):
            new = choice.stage
            assert can and new.weight_bytes + new.kv_bytes + new.working_bytes <= free
        if choice.way is Way.HOT:
            assert covers[index]
    shuffled = random.sample(candidates, len(candidates))
    assert choose_for(record, sorted(lost), *shuffled, refused=refused) == chosen
