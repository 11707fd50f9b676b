"""What is relied on of stored figures and events of machines, the same on SQLite and on PostgreSQL."""

from dataclasses import replace

from swarm_leader.domain.telemetry_records import (
    EVENTS_MAX,
    HOUR_S,
    HOURS_KEPT_S,
    MINUTE_S,
    MINUTES_KEPT_S,
    MetricRow,
    NodeEvent,
)
from swarm_leader.store import Store, open_store

from tests.integration.store.older import go_back
from tests.integration.store.rows import fellow

HOUR = 1_766_001_600  # a full one
EVENT = NodeEvent(HOUR + 0.5, "main", "f1", "kitchen \N{DESKTOP COMPUTER}", "lost", "no heartbeat for 9 s")


def minute(number: int, fellow_id: str = "", pool: str = "main", **figures: float) -> MetricRow:
    """A minute of that hour."""
    return MetricRow(MINUTE_S, HOUR + MINUTE_S * number, pool, fellow_id, figures)


async def test_figures_come_back_in_order_and_of_whom_was_asked_for(store: Store):
    await store.metrics.add([minute(2, availability=0.5), minute(1, availability=1.0, tokens_per_s=2.25)])
    await store.metrics.add([minute(1, "f1", availability=0.1), minute(1, pool="garage", availability=0.2)])

    told = await store.metrics.history("main", "", MINUTE_S, HOUR, HOUR + HOUR_S)
    of_one = await store.metrics.history("main", "f1", MINUTE_S, HOUR, HOUR + HOUR_S)
    earlier = await store.metrics.history("main", "", MINUTE_S, HOUR, HOUR + 2 * MINUTE_S)

    assert told == [(HOUR + 60, {"availability": 1.0, "tokens_per_s": 2.25}), (HOUR + 120, {"availability": 0.5})]
    assert of_one == [(HOUR + 60, {"availability": 0.1})]
    assert earlier == told[:1]


async def test_a_minute_written_again_is_replaced(store: Store):
    await store.metrics.add([minute(1, availability=1.0)])
    await store.metrics.add([minute(1, availability=0.25)])

    assert await store.metrics.history("main", "", MINUTE_S, 0, HOUR + HOUR_S) == [(HOUR + 60, {"availability": 0.25})]


async def test_an_hour_is_the_mean_of_the_minutes_in_which_a_figure_was_known(store: Store):
    await store.metrics.add([minute(0, score=90.0), minute(1, score=70.0, temperature_c=60.0), minute(60, score=1.0)])
    for _ in range(2):
        await store.metrics.roll_up(HOUR)

    assert await store.metrics.history("main", "", HOUR_S, 0, HOUR + HOUR_S) == [
        (HOUR, {"score": 80.0, "temperature_c": 60.0})
    ]
    assert await store.metrics.newest(HOUR_S) == HOUR
    assert await store.metrics.oldest(MINUTE_S) == HOUR
    assert await store.metrics.newest(MINUTE_S) == HOUR + HOUR_S


async def test_minutes_are_kept_for_7_days_and_hours_for_90(store: Store):
    hour = MetricRow(HOUR_S, HOUR, "main", "", {"score": 80.0})
    await store.metrics.add([minute(0, score=90.0), minute(1, score=70.0), hour, replace(hour, at_s=HOUR + HOUR_S)])

    await store.metrics.prune(HOUR + MINUTE_S + MINUTES_KEPT_S)
    minutes = await store.metrics.history("main", "", MINUTE_S, 0, 2 * HOUR)
    hours = await store.metrics.history("main", "", HOUR_S, 0, 2 * HOUR)
    await store.metrics.prune(HOUR + HOUR_S + HOURS_KEPT_S)

    assert [at_s for at_s, _ in minutes] == [HOUR + MINUTE_S]
    assert [at_s for at_s, _ in hours] == [HOUR, HOUR + HOUR_S]
    assert [at_s for at_s, _ in await store.metrics.history("main", "", HOUR_S, 0, 2 * HOUR)] == [HOUR + HOUR_S]


async def test_events_are_told_newest_first_by_page_and_by_machine(store: Store):
    await store.metrics.add_events([replace(EVENT, words=str(number)) for number in range(4)])
    await store.metrics.add_events([replace(EVENT, fellow_id="f2", words="of another"), replace(EVENT, pool="garage")])

    newest = await store.metrics.events("main", limit=3)
    before = await store.metrics.events("main", limit=10, before_sequence=newest[-1].sequence)
    of_one = await store.metrics.events("main", limit=10, fellow_id="f2")

    assert [event.words for event in newest] == ["of another", "3", "2"]
    assert [event.words for event in before] == ["1", "0"]
    assert [event.words for event in of_one] == ["of another"]
    assert replace(before[-1], sequence=0) == replace(EVENT, words="0")


async def test_events_take_no_more_room_than_they_may(store: Store):
    await store.metrics.add_events([EVENT] * 3)
    newest = (await store.metrics.events("main", 1))[0].sequence
    await store.metrics.prune(int(EVENT.at_s) + 60)
    kept = len(await store.metrics.events("main", 10))
    await store.metrics.prune(int(EVENT.at_s) + HOURS_KEPT_S + 60)

    assert (kept, newest) == (3, 3)
    assert await store.metrics.events("main", 10) == []
    assert EVENTS_MAX == 20_000


async def test_machines_from_before_there_were_pools_are_in_main(database_url: str):
    store = await open_store(database_url)
    await store.fellows.save(fellow(1, pool="garage"))
    await store.close()
    await go_back(database_url, "0004")
    async with await open_store(database_url) as again:
        assert [known.pool for known in await again.fellows.all()] == ["main"]
