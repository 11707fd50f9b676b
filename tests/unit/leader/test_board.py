"""Which placement answers requests for a model: its own, or that of a base which holds it as an adapter."""

import pytest
from swarm_leader.domain.holding import AdapterRef, AdapterUse
from swarm_leader.domain.records import PlacementRecord, PlacementState, Transport
from swarm_leader.flows.board import Board

S = PlacementState


class NoLedger:
    """The board is only shown records here."""


def board_of(**states: PlacementState) -> Board:
    """A board with placements of these models; the base holds the adapter "pirate" for sessions that choose it."""
    board = Board(NoLedger())  # type: ignore[arg-type]
    for model_id, state in states.items():
        use = AdapterUse.CHOSEN if model_id == "base" else AdapterUse.MERGED
        board.adopt(
            PlacementRecord(
                placement_id=f"of {model_id}",
                model_id=model_id,
                manifest_sha256="0" * 64,
                epoch=1,
                state=state,
                reason="",
                transport=Transport.AUTO,
                dtype="F32",
                context_tokens=256,
                kv_tokens=256,
                in_flight_max=1,
                created_s=0.0,
                stages=(),
                adapters=(AdapterRef("pirate", "1" * 64, use),),
            )
        )
    return board


@pytest.mark.parametrize(
    ("states", "served_by"),
    [
        ({"base": S.READY}, ("base", "pirate")),
        ({"pirate": S.READY}, ("pirate", "")),
        ({"base": S.READY, "pirate": S.READY}, ("pirate", "")),
        ({"base": S.READY, "pirate": S.LOADING}, ("base", "pirate")),
        ({"base": S.READY, "pirate": S.FAILED}, ("base", "pirate")),
        ({"base": S.IDLE, "pirate": S.UNLOADED}, ("base", "pirate")),
        ({"base": S.IDLE, "pirate": S.IDLE}, ("pirate", "")),
        ({"base": S.FAILED, "pirate": S.FAILED}, ("pirate", "")),
    ],
)
def test_ready_placements_come_first_and_then_the_models_own(states, served_by):
    placement, adapter = board_of(**states).serving_of("pirate")

    assert (placement.model_id, adapter) == served_by


@pytest.mark.parametrize("state", [S.FAILED, S.UNLOADED])
def test_a_base_that_is_over_holds_no_adapter(state):
    assert board_of(base=state).serving_of("pirate") is None


def test_an_adapter_that_is_part_of_every_session_of_another_model_is_not_chosen_there():
    assert board_of(poet=S.READY).serving_of("pirate") is None
    assert board_of(poet=S.READY).serving_of("base") is None
