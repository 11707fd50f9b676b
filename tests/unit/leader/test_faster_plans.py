"""Placing by measured speeds: who holds how much, who is left out and why, and in which order the ring stands."""

import time
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from swarm_core.errors import SwarmError
from swarm_leader.domain.capabilities import LinkTime
from swarm_leader.domain.device_facts import DeviceFacts
from swarm_leader.domain.planning.budget import WeightForm, cost_of
from swarm_leader.domain.planning.faster import still_true
from swarm_leader.domain.planning.plan import PlanRequest
from swarm_leader.domain.planning.planner import plan
from swarm_leader.domain.planning.prediction import predict_links_ms, predict_stage_ms
from swarm_leader.domain.records import Route, Transport

from tests.unit.leader.model_facts import GIGABYTE, MEGABYTE, make_fellow, make_manifest

# 20 layers of 200 MB in F32, next to no embeddings: 4 GB to read for a token.
MODEL = make_manifest(layer_count=20, layer_elements=50 * MEGABYTE, vocabulary_size=10)


def machine(name, gigabytes=8.0, reads=10e9, away_ms=None, links=(), kind="cpu", flops=None, **changes):
    """A fellow with one device that reads so many bytes a second. links: (peer's name, ms there and back)."""
    free = int(gigabytes * GIGABYTE)
    fellow = make_fellow(name, free, **changes)
    device = DeviceFacts(0, kind, free, "F32", reads, flops)
    times = tuple(LinkTime(f"id-{peer}", False, round_trip_ms) for peer, round_trip_ms in links)
    return replace(fellow, devices=(device,), leader_round_trip_ms=away_ms, link_times=times)


def names(placed):
    """Who holds the stages, in ring order."""
    return [stage.fellow_id.removeprefix("id-") for stage in placed.stages]


def layers(placed):
    """How many layers each stage holds."""
    return [stage.layer_stop - stage.layer_start for stage in placed.stages]


def test_a_slow_machine_gets_fewer_layers_so_that_all_stages_take_equally_long():
    slow_and_fast = [machine("slow", reads=5e9), machine("fast", reads=15e9)]

    placed = plan(MODEL, slow_and_fast, PlanRequest(fellow_ids=("id-slow", "id-fast")))

    assert layers(placed) == [5, 15]
    assert placed.stages[0].predicted_ms == pytest.approx(placed.stages[1].predicted_ms, rel=0.01)


def test_memory_stays_the_limit_of_what_a_fast_machine_is_given():
    slow_and_fast = [machine("slow", reads=5e9), machine("fast", gigabytes=2.5, reads=50e9)]

    placed = plan(MODEL, slow_and_fast, PlanRequest(fellow_ids=("id-slow", "id-fast")))

    fast = placed.stages[1]
    assert layers(placed)[1] < 12
    assert fast.weight_bytes + fast.kv_bytes + fast.working_bytes <= 2.5 * GIGABYTE


def test_machines_that_read_about_equally_fast_are_cut_by_memory_as_without_speeds():
    alike = [machine("a", 8, reads=10.0e9), machine("b", 4, reads=10.1e9)]
    unknown = [machine("a", 8, reads=None), machine("b", 4, reads=None)]
    named = PlanRequest(fellow_ids=("id-a", "id-b"))

    assert layers(plan(MODEL, alike, named)) == layers(plan(MODEL, unknown, named))


def test_the_fastest_machine_that_holds_all_is_taken_and_the_roomiest_left_out_with_its_numbers():
    fleet = [machine("attic", 64, reads=12e9, away_ms=240), machine("desk", 16, reads=72e9, away_ms=1)]

    placed = plan(MODEL, fleet, PlanRequest())

    assert names(placed) == ["desk"]
    (left_out,) = placed.forecast.left_out
    assert (left_out.fellow_id, left_out.name) == ("id-attic", "attic")
    assert left_out.reason == "3.0 tokens/s with it, 18.0 without; it reads 12.0 GB/s, the others at least 72.0"
    assert f"attic left out: {left_out.reason}" in placed.notes


def test_who_was_left_out_and_took_over_since_is_said_to_be_left_out_no_more():
    notes = ("attic left out: 3.0 tokens/s with it", "attic lacks serve_quantized", "desk left out: far")

    assert still_true(notes, {"attic", "shed"}) == ("attic lacks serve_quantized", "desk left out: far")


def test_a_far_machine_is_left_out_where_two_near_ones_hold_the_model():
    fleet = [
        machine("far", 3.4, reads=50e9, away_ms=200),
        machine("near", 3.2, reads=50e9, away_ms=1),
        machine("also", 3.1, reads=50e9, away_ms=1),
    ]

    placed = plan(MODEL, fleet, PlanRequest())

    assert sorted(names(placed)) == ["also", "near"]
    assert "200 ms away" in placed.forecast.left_out[0].reason


def test_more_stages_are_taken_only_where_they_are_faster():
    roomy_but_slow = machine("old", 64, reads=2e9)
    two_fast = [machine(name, 4, reads=60e9) for name in ("a", "b")]

    assert names(plan(MODEL, [roomy_but_slow, *two_fast], PlanRequest())) == ["a", "b"]
    assert names(plan(MODEL, [machine("new", 64, reads=60e9), *two_fast], PlanRequest())) == ["new"]


def test_what_is_within_a_twentieth_is_placed_as_without_speeds():
    fleet = [machine("roomy", 64, reads=10e9), machine("quick", 16, reads=10.4e9)]

    placed = plan(MODEL, fleet, PlanRequest())

    assert names(placed) == ["roomy"]
    assert not placed.forecast.left_out


def test_an_unknown_speed_of_who_would_be_chosen_leaves_all_as_without_speeds():
    fleet = [machine("roomy", 64, reads=None), machine("quick", 16, reads=100e9)]

    assert names(plan(MODEL, fleet, PlanRequest())) == ["roomy"]


def test_named_fellows_and_a_count_are_obeyed():
    fleet = [machine("old", 64, reads=2e9), machine("a", 8, reads=60e9), machine("b", 8, reads=50e9)]

    assert names(plan(MODEL, fleet, PlanRequest(fellow_ids=("id-old",)))) == ["old"]
    assert sorted(names(plan(MODEL, fleet, PlanRequest(num_stages=2)))) == ["a", "b"]
    assert len(plan(MODEL, fleet, PlanRequest(num_stages=3)).stages) == 3


def test_no_other_model_ends_for_speed():
    quick = replace(machine("quick", 16, reads=100e9), makes_room_of=("org/other",))

    assert names(plan(MODEL, [machine("roomy", 64, reads=10e9), quick], PlanRequest())) == ["roomy"]


def test_who_is_near_stands_side_by_side_where_links_were_measured():
    """Two homes 60 ms apart: by name the ring would cross between them four times, in this order twice."""
    homes = {"a": 1, "b": 2, "c": 1, "d": 2}
    fleet = [
        machine(one, 2.5, links=[(two, 1 if homes[one] == homes[two] else 60) for two in homes if two != one])
        for one in homes
    ]

    placed = plan(MODEL, fleet, PlanRequest(num_stages=4))

    assert names(placed) == ["a", "c", "b", "d"]
    assert sum(placed.forecast.link_ms) == pytest.approx(4 * 1.03 + 2 * (30 - 0.5), abs=0.1)


def test_a_relayed_link_travels_by_the_leader_and_a_direct_one_as_measured():
    fleet = [machine("a", away_ms=20, links=[("b", 8)]), machine("b", away_ms=40)]
    named = ("id-a", "id-b")

    relayed = plan(MODEL, fleet, PlanRequest(fellow_ids=named, transport=Transport.TUNNEL))
    direct = plan(MODEL, fleet, PlanRequest(fellow_ids=named))

    assert {stage.route for stage in direct.stages} == {Route.DIRECT}
    assert relayed.forecast.link_ms == pytest.approx((1.03 + 29.5, 1.03 + 29.5))
    assert direct.forecast.link_ms == pytest.approx((1.03 + 3.5, 1.03 + 3.5))
    assert direct.predicted_tokens_per_s > relayed.predicted_tokens_per_s


def test_a_narrow_link_takes_longer_for_a_hidden_state_than_for_a_token():
    wide = make_manifest(layer_count=4, hidden_size=4096, vocabulary_size=10)
    narrow = [replace(machine(name, 40), leader_up_bytes_per_s=1e6) for name in ("a", "b")]

    placed = plan(wide, narrow, PlanRequest(fellow_ids=("id-a", "id-b")))

    assert placed.forecast.link_ms == pytest.approx((1.03 + 4 * 4.096, 1.03 + 0.1))


def test_the_first_token_is_predicted_from_products_and_unknown_without_them():
    """512 tokens of 1e9 weights: 1.024e12 operations, in two pieces that follow each other through both stages."""
    known = [machine(name, flops=1e12) for name in ("a", "b")]
    named = PlanRequest(fellow_ids=("id-a", "id-b"))
    linear = replace(
        MODEL, tensors={name: replace(entry, shape=(*entry.shape, 1)) for name, entry in MODEL.tensors.items()}
    )

    two = plan(linear, known, named)

    assert two.forecast.first_token_ms == pytest.approx(3 * 256, rel=0.02)
    assert plan(linear, [machine("a"), machine("b")], named).forecast.first_token_ms is None


def test_a_hundred_fellows_and_eighty_layers_are_placed_in_a_bounded_time():
    """Planning runs on the leader's event loop."""
    big = make_manifest(layer_count=80, layer_elements=40 * MEGABYTE)
    fleet = [machine(f"m{n:03}", 2 + n % 3, reads=(5 + n % 17) * 1e9, away_ms=n % 11) for n in range(100)]

    began_s = time.process_time()
    placed = plan(big, fleet, PlanRequest())

    assert placed.stages
    assert time.process_time() - began_s < 10


# Properties.

speeds = st.sampled_from([2e9, 5e9, 10e9, 11e9, 25e9, 100e9])
distances = st.none() | st.sampled_from([0.5, 5.0, 40.0, 250.0])
sizes = st.integers(8, 40).map(lambda tenths: tenths / 10)


@st.composite
def fleets(draw, smallest=1):
    """One to six machines of any speed, size and distance."""
    return [
        machine(f"f{index}", draw(sizes), draw(speeds), draw(distances))
        for index in range(draw(st.integers(smallest, 6)))
    ]


models = st.integers(2, 12).map(lambda count: make_manifest(layer_count=count, layer_elements=40 * MEGABYTE))
wishes = st.builds(
    PlanRequest, num_stages=st.sampled_from([0, 0, 2, 3]), transport=st.sampled_from(list(Transport)[:3])
)


def usual(manifest, fellows, request):
    """As planned without speeds: over the roomiest, as few as fit, cut by memory."""
    blind = [replace(one, devices=(replace(one.devices[0], read_bytes_per_s=None),)) for one in fellows]
    return plan(manifest, blind, request)


@settings(max_examples=120, deadline=None)
@given(models, fleets(), wishes)
def test_a_plan_by_speeds_is_never_slower_than_one_without_by_its_own_prediction(manifest, fellows, request):
    try:
        without = usual(manifest, fellows, request)
    except SwarmError:
        assume(False)

    placed = plan(manifest, fellows, request)

    by_id = {fellow.fellow_id: fellow for fellow in fellows}
    assert 1000 / placed.predicted_tokens_per_s <= 1.0001 * lap_ms(manifest, without, by_id)
    assert len(placed.stages) == (request.num_stages or len(placed.stages))
    held = [layer for stage in placed.stages for layer in range(stage.layer_start, stage.layer_stop)]
    assert held == list(range(manifest.layer_count))
    for stage in placed.stages:
        assert stage.weight_bytes + stage.kv_bytes + stage.working_bytes <= by_id[stage.fellow_id].free_bytes
    assert {one.fellow_id for one in placed.forecast.left_out}.isdisjoint(stage.fellow_id for stage in placed.stages)


@settings(max_examples=80, deadline=None)
@given(models, fleets(), st.randoms(use_true_random=False))
def test_the_order_of_the_fellows_changes_no_plan_by_speeds(manifest, fellows, random):
    try:
        first = plan(manifest, fellows, PlanRequest())
    except SwarmError:
        assume(False)
    shuffled = list(fellows)
    random.shuffle(shuffled)

    assert plan(manifest, shuffled, PlanRequest()) == first


@settings(max_examples=80, deadline=None)
@given(models, fleets())
def test_a_machine_that_is_faster_roomier_and_nearer_than_all_makes_no_plan_slower(manifest, fellows):
    """By more than what a plan as usual may be slower than the fastest one."""
    try:
        before = plan(manifest, fellows, PlanRequest())
    except SwarmError:
        assume(False)
    known = [fellow.leader_round_trip_ms for fellow in fellows]
    better = machine("best", 4.1, 100e9, None if None in known else min(known))

    after = plan(manifest, [*fellows, better], PlanRequest())

    assert after.predicted_tokens_per_s >= before.predicted_tokens_per_s / 1.06


def lap_ms(manifest, placed, by_id):
    """A lap of a plan that was made without speeds, with them."""
    cost = cost_of(manifest, WeightForm("F32"))
    ring = [by_id[stage.fellow_id] for stage in placed.stages]
    compute_ms = [
        predict_stage_ms(cost, fellow, stage.devices) for fellow, stage in zip(ring, placed.stages, strict=True)
    ]
    return sum(compute_ms) + sum(predict_links_ms(ring, placed.stages, manifest.hidden_size, "F32"))
