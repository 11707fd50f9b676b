"""Logs of fellows: bounded, followed, harmless to terminals, gone with their fellow; a full disk costs logs alone."""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
from silentswarm.fellow.v1 import logs_pb2 as up_pb2
from silentswarm.fellow.v1 import logs_pb2_grpc as up_pb2_grpc
from silentswarm.leader.v1 import fleet_pb2, logs_pb2, logs_pb2_grpc
from swarm_core.errors import Reason
from swarm_leader.logs.files import FILE_BYTES_MAX, LogFiles, LogLine
from swarm_leader.rpc.logs import BREATH_S

from tests.integration.leader.rig import WAIT_S, Rig, refusal_of, running_leader, text_of, until
from tests.integration.leader.scripted_fellow import ScriptedFellow, joined

ESCAPE = "\x1b]0;owned\x07\u202e"


async def push(rig: Rig, fellow: ScriptedFellow, *lines: str, source: str = "fellow", dropped: int = 0) -> int:
    """Send lines as this fellow; returns how many were taken."""

    async def batches() -> AsyncIterator[up_pb2.LogBatch]:
        told = [up_pb2.LogLine(source=source, text=line) for line in lines]
        yield up_pb2.LogBatch(lines=told, dropped=dropped)

    done = await up_pb2_grpc.FellowLogsStub(rig.channel).Push(batches(), metadata=fellow.metadata, timeout=WAIT_S)
    return done.taken


def watch(rig: Rig, name: str, **request: object) -> grpc.aio.UnaryStreamCall:
    """Ask for a fellow's log."""
    request = logs_pb2.WatchLogsRequest(fellow_id=name, **request)
    return logs_pb2_grpc.LogsStub(rig.channel).WatchLogs(request, timeout=WAIT_S)


async def kept(rig: Rig, name: str = "kitchen", **request: object) -> list[str]:
    """Texts of the lines that are kept."""
    return [line.text async for line in watch(rig, name, **request)]


@asynccontextmanager
async def leader_and_fellow(folder: Path, **changes: object) -> AsyncIterator[tuple[Rig, ScriptedFellow]]:
    """Both, connected."""
    async with running_leader(folder, **changes) as rig, joined(rig.address, ScriptedFellow("kitchen")) as (fellow,):
        yield rig, fellow


async def test_lines_are_kept_in_order_and_told_from_the_end_and_by_source(tmp_path):
    async with leader_and_fellow(tmp_path) as (rig, fellow):
        taken = await push(rig, fellow, *(f"line {number}" for number in range(5)))
        await push(rig, fellow, "loaded", source="tiny-stage-0", dropped=3)

        assert taken == 5
        assert await kept(rig, tail_lines=3) == [
            "line 4",
            "(3 lines were written faster than they could be sent)",
            "loaded",
        ]
        assert await kept(rig, source="tiny-stage-0") == ["loaded"]
        assert [line.number async for line in watch(rig, "kitchen")] == list(range(1, 8))


async def test_a_follower_gets_what_is_kept_and_then_what_comes_each_line_once(tmp_path):
    async with leader_and_fellow(tmp_path) as (rig, fellow):
        await push(rig, fellow, "before")
        call = watch(rig, "kitchen", follow=True)
        lines = [await call.read()]
        pushing = [asyncio.create_task(push(rig, fellow, f"after {number}")) for number in range(3)]
        lines += [await call.read() for _ in range(3)]
        await asyncio.gather(*pushing)
        call.cancel()

    assert lines[0].text == "before"
    assert sorted(line.text for line in lines[1:]) == ["after 0", "after 1", "after 2"]
    assert [line.number for line in lines] == [1, 2, 3, 4]


async def test_numbers_go_on_after_a_restart_of_the_leader(tmp_path):
    fellow = ScriptedFellow("kitchen")
    async with running_leader(tmp_path) as rig, joined(rig.address, fellow):
        await push(rig, fellow, "one", "two")
    async with running_leader(tmp_path) as rig, joined(rig.address, fellow):
        await push(rig, fellow, "three")
        assert [(line.number, line.text) async for line in watch(rig, "kitchen")] == [
            (1, "one"),
            (2, "two"),
            (3, "three"),
        ]


async def test_nothing_in_a_line_reaches_a_terminal_and_no_secret_is_kept(tmp_path):
    async with leader_and_fellow(tmp_path) as (rig, fellow):
        await push(rig, fellow, f"{ESCAPE}hello sk-swarm-0123456789abcdef\ttab", source=f"x{ESCAPE}")
        line = await watch(rig, "kitchen").read()

    assert line.text == "\\x1b]0;owned\\x07\\u202ehello sk-swarm-***\ttab"
    assert line.source.isprintable()
    assert "0123456789abcdef" not in "".join(file.read_text() for file in tmp_path.glob("logs/*/*"))


async def test_a_deleted_fellows_logs_go_and_whoever_follows_is_let_go(tmp_path):
    async with leader_and_fellow(tmp_path) as (rig, fellow):
        await push(rig, fellow, "one")
        following = asyncio.create_task(kept(rig, follow=True))
        await until(lambda: rig.leader.watching.logs._followers, "somebody follows")
        await rig.fleet.DeleteFellow(fleet_pb2.DeleteFellowRequest(fellow_id="kitchen"))
        assert await following == ["one"]
        await until(lambda: not list((tmp_path / "logs").iterdir()), "its folder is gone")
        gone = await refusal_of(watch(rig, "kitchen"))

    assert gone.why is Reason.FELLOW_NOT_FOUND


async def test_a_machine_writes_into_no_log_but_its_own_and_people_into_none(tmp_path):
    attic = ScriptedFellow("attic")
    async with leader_and_fellow(tmp_path) as (rig, fellow), joined(rig.address, attic):
        await push(rig, attic, "of the attic")
        refused = await refusal_of(push(rig, ScriptedFellow("nobody"), "of nobody"))

        assert await kept(rig, "kitchen") == []
        assert await kept(rig, "attic") == ["of the attic"]
    assert refused.why is Reason.UNAUTHENTICATED
    assert fellow.credential != attic.credential


async def test_a_disk_without_room_for_logs_costs_logs_alone(tmp_path):
    """A leader that must leave more free than there is: nothing is written, lines are still followed, replies go on."""
    more_than_there_is = 2 * shutil.disk_usage(tmp_path).total / 1e9
    async with leader_and_fellow(tmp_path, min_free_disk_gb=more_than_there_is) as (rig, fellow):
        call = watch(rig, "kitchen", follow=True)
        await until(lambda: rig.leader.watching.logs._followers, "somebody follows")
        assert await push(rig, fellow, "one", "two") == 2
        followed = [(await call.read()).text for _ in range(2)]
        call.cancel()
        await rig.load_ready()
        assert text_of([event async for event in rig.generate()]) == "Hi there"
        left = await kept(rig)

    assert (followed, left) == (["one", "two"], [])
    assert not list(tmp_path.glob("logs/*"))


def lines(count: int, begin: int = 1) -> Iterable[LogLine]:
    """Lines of half a kilobyte."""
    return [LogLine(number, 0.5, "fellow", "x" * 500) for number in range(begin, begin + count)]


def test_a_fellow_takes_two_megabytes_at_most_and_all_together_their_share(tmp_path):
    files = LogFiles(tmp_path / "logs", total_bytes_max=5 * FILE_BYTES_MAX, free_bytes_min=0)
    for name in ("first", "second", "third", "fourth"):
        for begin in range(1, 6001, 500):
            assert files.append(name, lines(500, begin))
    sizes = {file: file.stat().st_size for file in (tmp_path / "logs").glob("*/*.log")}

    assert sum(sizes.values()) <= 5 * FILE_BYTES_MAX + FILE_BYTES_MAX
    assert all(size <= 1.5 * FILE_BYTES_MAX for size in sizes.values())
    assert files.last_number("fourth") == 6000
    assert [line.number for line in files.tail("fourth", 3)] == [5998, 5999, 6000]


def test_a_line_that_was_cut_off_is_left_out(tmp_path):
    files = LogFiles(tmp_path / "logs", total_bytes_max=FILE_BYTES_MAX, free_bytes_min=0)
    files.append("first", lines(2))
    with (tmp_path / "logs" / "first" / "now.log").open("ab") as file:
        file.write(b'{"number": 3, "at_s"')

    assert files.last_number("first") == 2
    assert [line.number for line in files.tail("first", 10)] == [1, 2]


async def test_megabytes_of_escapes_in_one_batch_hold_up_nobody(tmp_path):
    async with leader_and_fellow(tmp_path) as (rig, fellow):
        pushing = asyncio.create_task(
            push(rig, fellow, *["\x1b\n" * 700_000, *["\x07" * 2000] * 900], source="\x1b" * 900)
        )
        longest_s, before_s = 0.0, time.monotonic()
        while not pushing.done():
            await asyncio.sleep(0.005)
            longest_s, before_s = max(longest_s, time.monotonic() - before_s), time.monotonic()
        lines = await kept(rig, tail_lines=1000)

        assert await pushing == len(lines) == 901
        assert longest_s < 0.5
        assert all(len(line) <= 2000 and line.isprintable() for line in lines)


async def test_a_machine_that_opens_many_streams_is_read_no_faster(tmp_path):
    async with leader_and_fellow(tmp_path) as (rig, fellow):
        begun_s = time.monotonic()
        await asyncio.gather(*(push(rig, fellow, f"line {number}") for number in range(10)))

        assert time.monotonic() - begun_s >= 10 * BREATH_S
        assert sorted(await kept(rig)) == [f"line {number}" for number in range(10)]
