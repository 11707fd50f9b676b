"""What a fellow tells of its health and sends of its logs, against a leader that listens, and one that does not."""

from pathlib import Path

from tests.integration.fellow.running_fellow import running_fellow
from tests.integration.fellow.scripted_leader import ScriptedLeader, TinyModel, eventually

ONE = TinyModel()


async def test_heartbeats_tell_what_the_machine_can_say_and_its_crashes(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path, SWARM_POOL="garage"):
        fellow = await leader.connection()
        await eventually(
            lambda: fellow.heartbeats and fellow.heartbeats[-1].telemetry.HasField("memory_free_bytes"), "it says so"
        )
        healthy = fellow.heartbeats[-1].telemetry
        await fellow.load(ONE.spec("p1"))
        stream = await leader.stream()
        stream.request("r1", "die")
        await stream.reply("r1")
        await eventually(lambda: fellow.heartbeats[-1].telemetry.stage_crash_count, "the crash is counted")

    assert fellow.register.pool == "garage"
    assert healthy.memory_free_bytes > 2**20
    assert healthy.disk_free_bytes > 0
    assert (healthy.stage_crash_count, healthy.HasField("stage_crash_count")) == (0, True)
    assert [len(beat.telemetry.devices) <= len(beat.devices) for beat in fellow.heartbeats].count(False) == 0
    assert fellow.heartbeats[-1].telemetry.stage_crash_count == 1


async def test_lines_of_stages_reach_the_leader_as_they_are_written(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        fellow = await leader.connection()
        await fellow.load(ONE.spec("p1"))
        await eventually(lambda: any("told: " in line.text for line in leader.log_lines), "its stage's line came")

    line = next(line for line in leader.log_lines if "told: " in line.text)
    assert line.source == "tiny--one-stage-0"
    assert line.at_ms > 1_700_000_000_000
    assert fellow.register.capabilities.HasField("logs")


async def test_a_leader_without_logs_and_a_fellow_that_withholds_them_work_as_ever(tmp_path: Path):
    deaf, leader = ScriptedLeader(ONE), ScriptedLeader(ONE)
    deaf.takes_logs = False
    await deaf.start()
    await leader.start()
    async with running_fellow(deaf.address, tmp_path / "a"):
        of_deaf = await deaf.connection()
        await of_deaf.load(ONE.spec("p1"))
        await eventually(lambda: of_deaf.stages(), "it holds its stage")
    async with running_fellow(leader.address, tmp_path / "b", SWARM_FELLOW_DISABLE_CAPABILITIES="logs"):
        silent = await leader.connection()
        await silent.load(ONE.spec("p1"))
        await eventually(lambda: len(silent.heartbeats) > 3, "it lives on")

    assert len(deaf.connections) == 1
    assert leader.log_lines == []
    assert not silent.register.capabilities.HasField("logs")
