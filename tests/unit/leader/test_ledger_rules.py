"""The ledger's rules: which state follows which, and that an older epoch changes nothing."""

from dataclasses import replace

import pytest
from swarm_core.errors import StaleEpoch
from swarm_leader.domain import ledger as rules
from swarm_leader.domain.planner import PlanRequest, plan
from swarm_leader.domain.records import PlacementState, Route, Transport

from tests.unit.leader.model_facts import make_fellow, make_manifest


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
    assert rules.is_same_wish(make_record(), request_) is same


def test_stages_and_routes_are_set_one_by_one():
    record = rules.set_routes(rules.set_stage(make_record(), 1, "loaded"), (Route.DIRECT, Route.RELAY))

    assert [(stage.state, stage.route) for stage in record.stages] == [
        ("loading", Route.DIRECT),
        ("loaded", Route.RELAY),
    ]
