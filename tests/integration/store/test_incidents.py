"""Incidents, the same on SQLite and on PostgreSQL: as they were saved, newest first, and bounded."""

from swarm_leader.domain.incidents import LOG_MAX, Outcome
from swarm_leader.store import Store, open_store
from swarm_leader.store.incidents import SqlIncidentStore

from tests.integration.store.older import go_back
from tests.integration.store.rows import fellow, incident


async def test_an_incident_comes_back_exactly_as_it_was_saved(store: Store):
    await store.incidents.save(incident())

    assert await store.incidents.newest(10) == [incident()]


async def test_saving_an_incident_again_replaces_it(store: Store):
    await store.incidents.save(incident(closed_s=None, outcome=Outcome.OPEN))
    await store.incidents.save(incident(step="closed"))

    assert await store.incidents.newest(10) == [incident(step="closed")]
    assert await store.incidents.open() == []


async def test_incidents_are_listed_newest_first_and_by_model(store: Store):
    for number in (2, 1, 3):
        await store.incidents.save(incident(number, model_id="a" if number == 3 else "b"))

    newest = [one.incident_id for one in await store.incidents.newest(2)]
    assert newest == ["incident-0003", "incident-0002"]
    assert [one.incident_id for one in await store.incidents.newest(10, skip=2)] == ["incident-0001"]
    assert [one.incident_id for one in await store.incidents.newest(10, "b")] == ["incident-0002", "incident-0001"]


async def test_open_incidents_are_found_again_after_a_restart_oldest_first(database_url: str):
    async with await open_store(database_url) as before:
        for number in (2, 1, 3):
            await before.incidents.save(incident(number, closed_s=None if number < 3 else 1.0))

    async with await open_store(database_url) as after:
        assert [one.incident_id for one in await after.incidents.open()] == ["incident-0001", "incident-0002"]


async def test_only_the_newest_are_kept_and_every_open_one(store: Store):
    few = SqlIncidentStore(store.incidents._database, kept_max=2)
    await few.save(incident(1, closed_s=None))
    for number in (2, 3, 4):
        await few.save(incident(number))

    kept = [one.incident_id for one in await store.incidents.newest(10)]
    assert kept == ["incident-0004", "incident-0003", "incident-0001"]


async def test_machines_from_before_draining_are_not_drained(database_url: str):
    store = await open_store(database_url)
    await store.fellows.save(fellow(1))
    await store.close()
    await go_back(database_url, "0004")

    store = await open_store(database_url)

    assert await store.fellows.all() == [fellow(1, draining=False)]
    await store.close()


def test_the_log_of_one_incident_is_bounded_and_its_last_line_is_the_newest():
    noted = incident(log=())
    for number in range(LOG_MAX + 5):
        noted = noted.noted("waiting", f"line {number}", float(number))

    assert len(noted.log) == LOG_MAX
    assert (noted.log[0].what, noted.log[-1].what) == ("line 0", f"line {LOG_MAX + 4}")


def test_a_stage_that_is_lost_twice_is_named_once_with_whoever_lost_it_last():
    named = incident(stages=(), lost=(), replacements=()).with_lost(1, "kitchen").with_replacement(1, "garage")

    assert (named.stages, named.lost, named.replacements) == ((1,), ("kitchen",), ("garage",))
    again = named.with_lost(0, "attic").with_lost(1, "garage")
    assert (again.stages, again.lost, again.replacements) == ((1, 0), ("garage", "attic"), ("", ""))
