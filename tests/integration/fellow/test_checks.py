"""CHECK: whether a stage's process answers, and whom this machine reaches."""

import asyncio
import os
import signal
import time
from pathlib import Path

from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2

from tests.integration.fellow.running_fellow import running_fellow, stage_pids
from tests.integration.fellow.scripted_leader import ScriptedLeader, TinyModel, eventually

ONE = TinyModel("tiny/one")


async def test_a_stage_that_answers_is_alive_and_one_that_is_not_held_is_not(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        fellow = await leader.connection()
        await fellow.load(ONE.spec("p1"))
        alive = await fellow.ask(check=link_pb2.CheckSignal(placement_id="p1"))
        other = await fellow.ask(check=link_pb2.CheckSignal(placement_id="p9"))
        nobody = await fellow.ask(check=link_pb2.CheckSignal())

    assert alive.check == link_pb2.CheckDone(is_alive=True)
    assert not other.check.is_alive and "holds no loaded stage of placement p9" in other.check.failure
    assert nobody.check == link_pb2.CheckDone()
    assert fellow.register.capabilities.HasField("check")


async def test_a_frozen_stage_is_killed_and_told_as_crashed(tmp_path: Path):
    """A stopped process dies of SIGKILL alone, so that is what it gets."""
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        fellow = await leader.connection()
        await fellow.load(ONE.spec("p1"))
        os.kill(stage_pids()[0], signal.SIGSTOP)
        checked = await fellow.ask(timeout_s=4, check=link_pb2.CheckSignal(placement_id="p1"))
        await eventually(lambda: stage_pids() == [], "the frozen process was killed", within_s=3)
        again = await fellow.load(ONE.spec("p2"))

    assert not checked.check.is_alive and "does not answer: it is stopped" in checked.check.failure
    assert "answer" not in {progress.step for progress in fellow.progress}
    assert [event.kind for event in fellow.events] == [link_pb2.STAGE_EVENT_KIND_CRASHED]
    assert again.weight_bytes > 0


async def test_a_stage_that_a_busy_machine_keeps_from_answering_for_a_while_is_alive(tmp_path: Path):
    """It was killed after a second, with every session it held, and would have answered in the next."""
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path, habits="busy-1.8"):
        fellow = await leader.connection()
        await fellow.load(ONE.spec("p1"))
        before = stage_pids()
        fellow.progress.clear()
        os.kill(before[0], signal.SIGUSR2)
        checked = await fellow.ask(timeout_s=4, check=link_pb2.CheckSignal(placement_id="p1"))
        after = stage_pids()

    assert checked.check == link_pb2.CheckDone(is_alive=True)
    assert before == after and not fellow.events
    assert {progress.step for progress in fellow.progress} == {"answer"}


async def test_a_stage_that_computes_and_answers_nobody_is_killed_within_three_seconds(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path, habits="busy-60"):
        fellow = await leader.connection()
        await fellow.load(ONE.spec("p1"))
        os.kill(stage_pids()[0], signal.SIGUSR2)
        asked_s = time.monotonic()
        checked = await fellow.ask(timeout_s=4, check=link_pb2.CheckSignal(placement_id="p1"))
        took_s = time.monotonic() - asked_s
        await eventually(lambda: stage_pids() == [], "the process was killed", within_s=3)

    assert not checked.check.is_alive and "did not answer within" in checked.check.failure
    assert 2 < took_s < 4


async def test_a_leader_that_waits_for_two_seconds_has_its_answer_in_time(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path, habits="busy-60"):
        fellow = await leader.connection()
        await fellow.load(ONE.spec("p1"))
        os.kill(stage_pids()[0], signal.SIGUSR2)
        checked = await fellow.ask(timeout_s=2, check=link_pb2.CheckSignal(placement_id="p1"))

    assert not checked.check.is_alive and "did not answer within 1" in checked.check.failure


async def test_a_stage_that_neither_answers_nor_computes_is_killed_after_a_second(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        fellow = await leader.connection()
        await fellow.load(ONE.spec("p1"))
        os.kill(stage_pids()[0], signal.SIGUSR2)
        checked = await fellow.ask(timeout_s=4, check=link_pb2.CheckSignal(placement_id="p1"))
        await eventually(lambda: stage_pids() == [], "the process was killed", within_s=3)

    assert not checked.check.is_alive and "did not answer within 1" in checked.check.failure


async def test_the_first_address_that_takes_a_connection_is_named(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    listener = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    closed = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    here, gone = (f"127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in (listener, closed))
    closed.close()
    await closed.wait_closed()
    async with listener, running_fellow(leader.address, tmp_path):
        fellow = await leader.connection()
        checked = await fellow.ask(check=link_pb2.CheckSignal(addresses=["no address", gone, here]))
        none = await fellow.ask(check=link_pb2.CheckSignal(addresses=[gone, "a b:1", "127.0.0.1:70000"]))
        many = await fellow.ask(check=link_pb2.CheckSignal(addresses=[gone] * 16 + [here]))

    assert checked.check.reached_address == here
    assert none.check.reached_address == "" and many.check.reached_address == ""
