"""What flows rely on, the same on SQLite and on PostgreSQL."""

import asyncio
from dataclasses import replace

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine
from swarm_core.clock import ManualClock
from swarm_core.errors import Conflict
from swarm_leader.domain.records import PlacementState, Route
from swarm_leader.flows.board import Board
from swarm_leader.store import Store, open_store
from swarm_leader.store.address import parse_address

from tests.integration.store.rows import fellow, placement, stage


async def test_a_fellow_comes_back_exactly_as_it_was_saved(store: Store):
    await store.fellows.save(fellow(1))

    assert await store.fellows.by_identity("identity-1") == fellow(1)
    assert await store.fellows.by_identity("identity-2") is None


async def test_saving_a_fellow_again_replaces_it(store: Store):
    await store.fellows.save(fellow(1))
    await store.fellows.save(fellow(1, name="renamed", version="0.2.0", identity="new"))

    assert await store.fellows.all() == [fellow(1, name="renamed", version="0.2.0", identity="new")]


async def test_a_deleted_fellow_is_not_listed_but_found_by_its_identity(store: Store):
    await store.fellows.save(fellow(1, deleted=True))
    await store.fellows.save(fellow(2))

    assert await store.fellows.all() == [fellow(2)]
    assert (await store.fellows.by_identity("identity-1")).deleted


async def test_fellows_are_listed_by_name_in_the_same_order_on_both_engines(store: Store):
    names = ["b", "A", "a", "\u00e4", "Z", "_"]
    for number, name in enumerate(names):
        await store.fellows.save(fellow(number, name=name))

    assert [record.name for record in await store.fellows.all()] == sorted(names)


async def test_an_identity_belongs_to_one_fellow(store: Store):
    await store.fellows.save(fellow(1))

    with pytest.raises(Conflict):
        await store.fellows.save(fellow(2, identity="identity-1"))
    assert await store.fellows.all() == [fellow(1)]


async def test_a_placement_comes_back_exactly_as_it_was_saved(store: Store):
    await store.ledger.save(placement(), "planned")

    assert await store.ledger.latest("org/model") == placement()
    assert await store.ledger.latest("org/other") is None


async def test_saving_a_placement_again_replaces_it_and_its_stages(store: Store):
    await store.ledger.save(placement(), "planned")
    wired = replace(
        placement(), state=PlacementState.READY, stages=(stage(0, route=Route.DIRECT, state="loaded"),), notes=()
    )
    await store.ledger.save(wired, "ready")

    assert await store.ledger.latest("org/model") == wired


async def test_every_save_appends_to_the_log_in_order(store: Store, clock: ManualClock):
    for number, what in enumerate(["planned", "loading", "ready"]):
        clock.advance(1.0)
        await store.ledger.save(placement(epoch=1 + number // 2, placement_id="p1"), what)
    await store.ledger.save(placement("other"), "planned")

    events = await store.ledger.events("p1")
    assert [(event.what, event.epoch) for event in events] == [("planned", 1), ("loading", 1), ("ready", 2)]
    assert [event.at_s for event in events] == [1_760_000_001.25, 1_760_000_002.25, 1_760_000_003.25]
    assert [event.sequence for event in events] == sorted({event.sequence for event in events})
    assert await store.ledger.events("nothing") == []


async def test_the_newest_placement_is_the_one_of_the_highest_epoch(store: Store):
    for epoch in (1, 3, 2):
        await store.ledger.save(placement(epoch=epoch), "planned")

    assert (await store.ledger.latest("org/model")).epoch == 3


async def test_a_placement_that_begins_after_one_of_a_higher_epoch_is_the_newest(store: Store):
    rewired = placement(epoch=7, placement_id="first", state=PlacementState.UNLOADED)
    await store.ledger.save(rewired, "unloaded")
    board = Board(store.ledger)

    epoch = await board.next_epoch("org/model")
    await board.begin(placement(epoch=epoch, placement_id="second", state=PlacementState.READY), "ready")

    assert (epoch, await board.next_epoch("org/model"), await board.next_epoch("org/other")) == (8, 9, 1)
    assert [record.placement_id for record in await store.ledger.open()] == ["second"]
    assert (await store.ledger.latest("org/model")).placement_id == "second"


async def test_open_is_the_newest_of_every_model_that_is_not_unloaded(store: Store):
    await store.ledger.save(placement("b", 1), "planned")
    await store.ledger.save(placement("b", 2, state=PlacementState.FAILED), "failed")
    await store.ledger.save(placement("a", 1, state=PlacementState.READY), "ready")
    await store.ledger.save(placement("gone", 1, state=PlacementState.READY), "ready")
    await store.ledger.save(placement("gone", 2, state=PlacementState.UNLOADED, stages=()), "unloaded")

    opened = await store.ledger.open()
    assert [(record.model_id, record.epoch, len(record.stages)) for record in opened] == [("a", 1, 2), ("b", 2, 2)]


async def test_a_failed_save_leaves_neither_placement_nor_event(store: Store):
    await store.ledger.save(placement(), "planned")
    twice_the_same_stage = replace(placement(), state=PlacementState.READY, stages=(stage(0), stage(0)))

    with pytest.raises(Conflict):
        await store.ledger.save(twice_the_same_stage, "ready")
    assert await store.ledger.latest("org/model") == placement()
    assert [event.what for event in await store.ledger.events(placement().placement_id)] == ["planned"]


async def test_words_a_machine_sends_are_stored_whatever_bytes_they_hold(store: Store):
    await store.ledger.save(placement(reason="a\0b\udcff"), "bad \0 words")

    assert (await store.ledger.latest("org/model")).reason == "a\ufffdb?"
    assert [event.what for event in await store.ledger.events(placement().placement_id)] == ["bad \ufffd words"]


async def test_many_saves_at_once_all_land(store: Store):
    await asyncio.gather(*(store.ledger.save(placement(f"m{number}"), "planned") for number in range(40)))

    assert len(await store.ledger.open()) == 40


@pytest.mark.parametrize("change", ["UPDATE placement_events SET what = 'x'", "DELETE FROM placement_events"])
async def test_nobody_changes_the_log(store: Store, database_url: str, change: str):
    await store.ledger.save(placement(), "planned")
    engine = create_async_engine(parse_address(database_url).url)

    with pytest.raises(sa.exc.DBAPIError, match="append-only"):
        async with engine.begin() as connection:
            await connection.exec_driver_sql(change)
    await engine.dispose()
    assert [event.what for event in await store.ledger.events(placement().placement_id)] == ["planned"]


async def test_everything_is_still_there_after_a_restart(database_url: str):
    async with await open_store(database_url) as before:
        await before.fellows.save(fellow(1))
        await before.ledger.save(placement(), "planned")

    async with await open_store(database_url) as after:
        assert await after.fellows.all() == [fellow(1)]
        assert await after.ledger.open() == [placement()]
        assert len(await after.ledger.events(placement().placement_id)) == 1


async def test_a_healthy_database_is_writable(store: Store):
    assert await store.ledger.is_writable() == ""
    assert await store.ledger.is_writable() == ""
