"""The ledger's rules: which state follows which, and that an older epoch changes nothing."""

from dataclasses import replace

import pytest
from swarm_core.errors import StaleEpoch
from swarm_leader.domain import ledger as rules
from swarm_leader.domain.planning.planner import PlanRequest, plan
from swarm_leader.domain.records import PlacementState, Route, Transport

from tests.unit.leader.model_facts import (
    GIGABYTE,
    make_adapter,
    make_cards,
    make_fellow,
    make_linear_manifest,
    make_manifest,
)


def make_record():
    """A load over two fellows that just began."""
    planned = plan(make_manifest(), [make_fellow("a"), make_fellow("b")], PlanRequest(num_stages=2))
    return rules.begin(planned, "org/tiny", "f" * 64, "p1", 1.7e9)


def test_a_load_begins_at_epoch_1_with_its_stages_loading():
    record = make_record()

    assert (record.epoch, record.state) == (1, PlacementState.LOADING)
    assert [stage.state for stage in record.stages] == ["loading", "loading"]


def test_a_later_load_begins_beyond_the_epochs_of_the_earlier_ones():
    planned = plan(make_manifest(), [make_fellow("a")], PlanRequest())

    assert rules.begin(planned, "org/tiny", "f" * 64, "p2", 1.7e9, epoch=8).epoch == 8


def test_an_ended_placement_never_serves_again():
    ended = rules.end(make_record(), PlacementState.FAILED, "why", lost_fellow_id="id-b")

    assert [stage.state for stage in ended.stages] == ["ended", "lost"]
    for state in (PlacementState.READY, PlacementState.WIRING, PlacementState.LOADING, PlacementState.RECOVERING):
        with pytest.raises(StaleEpoch, match="cannot become"):
            rules.check_follows(ended, replace(ended, state=state))


def test_an_older_epoch_has_no_effect():
    wired = replace(make_record(), state=PlacementState.WIRING, epoch=3)

    with pytest.raises(StaleEpoch):
        rules.check_follows(wired, replace(wired, epoch=2))


def test_a_ready_ring_may_be_wired_again_and_go_idle():
    ready = replace(make_record(), state=PlacementState.READY)

    rules.check_follows(ready, replace(ready, state=PlacementState.WIRING, epoch=2))
    rules.check_follows(ready, replace(ready, state=PlacementState.IDLE))
    assert ready.state.holds_memory


@pytest.mark.parametrize(
    ("request_", "same"),
    [
        (PlanRequest(), True),
        (PlanRequest(num_stages=2), True),
        (PlanRequest(num_stages=3), False),
        (PlanRequest(fellow_ids=("id-a", "id-b")), True),
        (PlanRequest(fellow_ids=("id-b", "id-a")), False),
        (PlanRequest(transport=Transport.TUNNEL), False),
        (PlanRequest(context_tokens=2048), True),
        (PlanRequest(context_tokens=100), False),
    ],
)
def test_a_request_is_the_same_wish_when_it_asks_for_nothing_else(request_, same):
    assert (not rules.find_differences(make_record(), request_)) is same


def test_stages_and_routes_are_set_one_by_one():
    loaded = rules.set_loaded(make_record(), 1, rules.LoadedStage(), "b")
    record = rules.set_routes(loaded, (Route.DIRECT, Route.RELAY))

    assert [(stage.state, stage.route) for stage in record.stages] == [
        ("loading", Route.DIRECT),
        ("loaded", Route.RELAY),
    ]


def make_held_record():
    """A quantised, coded ring with an adapter to choose, that just began."""
    base = make_linear_manifest(layer_count=8, outputs=16_384, inputs=16_384)
    able = {"quantizations": ("nf4",), "codecs": ("int8",), "adapters_max": 2}
    fellows = [make_cards(name, 8 * GIGABYTE, 8 * GIGABYTE, **able) for name in "ab"]
    request = PlanRequest(num_stages=2, quantization="nf4", codec="int8", adapters=("pirate",))
    planned = plan(base, fellows, request, adapters=[make_adapter("pirate", base)])
    return rules.begin(planned, "org/tiny", "f" * 64, "p1", 1.7e9)


@pytest.mark.parametrize(
    ("request_", "differences"),
    [
        (PlanRequest(quantization="nf4", codec="int8", adapters=("pirate",)), []),
        (PlanRequest(quantization="int8"), ["quantization int8"]),
        (PlanRequest(quantization="none"), ["quantization none"]),
        (PlanRequest(codec="none"), ["codec none"]),
        (PlanRequest(adapters=("pirate", "poet")), ["adapter poet"]),
        (PlanRequest(num_stages=3, adapters=("poet", "sage")), ["3 stages", "adapters poet, sage"]),
    ],
)
def test_what_another_load_asks_for_beyond_what_is_held_is_named(request_, differences):
    assert rules.find_differences(make_held_record(), request_) == differences


def test_what_was_asked_for_and_could_not_be_had_is_the_same_wish_again():
    base, fellows = make_linear_manifest(), [make_fellow("old")]
    record = rules.begin(plan(base, fellows, PlanRequest(quantization="nf4")), "org/tiny", "f" * 64, "p1", 1.7e9)

    assert record.quantization == "none"
    assert not rules.find_differences(record, PlanRequest(quantization="nf4"))
    assert not rules.find_differences(record, PlanRequest(quantization="none"))
    assert rules.find_differences(record, PlanRequest(quantization="int8")) == ["quantization int8"]


def test_a_ring_without_links_codes_nothing_and_so_gives_every_codec():
    record = rules.begin(plan(make_manifest(), [make_fellow("a")], PlanRequest()), "org/tiny", "f" * 64, "p1", 1.7e9)

    assert not rules.find_differences(record, PlanRequest(codec="int8"))


def test_the_same_placement_again_asks_for_everything_it_was_given():
    record = make_held_record()

    again = rules.ask_again(record, ("id-b", "id-a"))

    assert again == PlanRequest(
        num_stages=2,
        fellow_ids=("id-b", "id-a"),
        transport=Transport.AUTO,
        context_tokens=2048,
        quantization="nf4",
        adapters=("pirate",),
        codec="int8",
    )
    assert not rules.find_differences(record, rules.ask_again(record))


def test_what_a_fellow_measured_is_kept_beside_what_was_planned():
    record = make_held_record()
    planned = record.stages[1]

    loaded = rules.LoadedStage(3000, "nf4", ("one layer in eight bits",), (1000, 2000))
    changed = rules.set_loaded(record, 1, loaded, "attic")

    stage = changed.stages[1]
    assert (stage.state, stage.quantization) == ("loaded", "nf4")
    assert (stage.weight_bytes, stage.weight_bytes_measured) == (planned.weight_bytes, 3000)
    assert [run.weight_bytes for run in stage.devices] == [1000, 2000]
    assert changed.stages[0] == record.stages[0]
    assert changed.notes == (*record.notes, "attic: one layer in eight bits")


def test_a_fellow_that_says_nothing_of_its_weights_holds_what_was_planned():
    record = make_held_record()

    stage = rules.set_loaded(record, 0, rules.LoadedStage(), "attic").stages[0]

    assert (stage.quantization, stage.weight_bytes_measured) == ("nf4", None)
    assert stage.devices == record.stages[0].devices
