"""One machine is one row, whatever becomes of its processes: restarts, kills, copies of its folder, a long sleep."""

import asyncio
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from silentswarm.leader.v1 import fleet_pb2, fleet_pb2_grpc
from swarm_rpc.channel import dial

from tests.e2e.swarm import Process, free_port, start, wait_for

LEASE_S = 3.0


class Machines:
    """A leader process, and fellow processes that a test starts and ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"127.0.0.1:{free_port()}"
        environ = {
            "SWARM_GRPC_PORT": self.address.rpartition(":")[2],
            "SWARM_DATA_DIR": str(folder / "leader"),
            "SWARM_HEARTBEAT_S": "0.3",
            "SWARM_LEASE_S": str(LEASE_S),
            "SWARM_MIN_FREE_DISK_GB": "0",
        }
        self.leader = start("swarm_leader", log=folder / "leader.log", env=environ)
        self.running: list[Process] = [self.leader]
        wait_for(lambda: " ready on " in self.leader.tail(), 30, "the leader")

    def start(self, state: str = "kitchen", log: str = "kitchen") -> Process:
        """A fellow on this state folder."""
        arguments = ("--leader", self.address, "--name", "kitchen", "--state-dir", self.folder / state)
        fellow = start("swarm_fellow", *arguments, log=self.folder / f"{log}.log")
        self.running.append(fellow)
        return fellow

    def rows(self) -> dict[str, str]:
        """Fellow id -> state, of every row."""

        async def ask() -> dict[str, str]:
            async with dial(self.address) as channel:
                answer = await fleet_pb2_grpc.FleetStub(channel).ListFellows(fleet_pb2.ListFellowsRequest(), timeout=10)
                return {fellow.fellow_id: fellow.state for fellow in answer.fellows}

        return asyncio.run(ask())

    def until(self, state: str, within_s: float) -> dict[str, str]:
        """Wait until every row is in this state, and there is one."""
        return wait_for(
            lambda: (rows := self.rows()) and set(rows.values()) == {state} and rows, within_s, f"every row is {state}"
        )


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    """All are ended afterwards."""
    running = Machines(tmp_path)
    try:
        yield running
    finally:
        for process in reversed(running.running):
            process.popen.kill()
            process.popen.wait()


def test_twenty_restarts_by_every_kind_of_end_leave_one_row(machines: Machines):
    log = machines.folder / "kitchen.log"
    for number in range(20):
        fellow = machines.start()
        wait_for(lambda: log.read_text().count("registered with the leader") == number + 1, 30, "it is let in")  # noqa: B023
        fellow.stop((signal.SIGTERM, signal.SIGKILL, signal.SIGINT)[number % 3])

    assert list(machines.until("silent", LEASE_S + 5).values()) == ["silent"]


def test_a_killed_fellow_that_comes_back_is_let_in_at_once(machines: Machines):
    """The kernel closed its connection, so nobody waits for a lease."""
    fellow = machines.start()
    machines.until("connected", 30)
    fellow.stop(signal.SIGKILL)
    machines.start()

    machines.until("connected", 30)
    assert "a second process" not in machines.leader.log.read_text()


def test_a_copied_state_folder_is_refused_while_the_machine_lives_and_both_logs_say_so(machines: Machines):
    first = machines.start()
    machines.until("connected", 30)
    wait_for(lambda: "registered with the leader" in first.tail(), 10, "the machine keeps its credential")
    shutil.copytree(machines.folder / "kitchen", machines.folder / "copy", ignore=shutil.ignore_patterns("run"))
    second = machines.start("copy", log="copy")

    wait_for(lambda: "another process with the same identity" in second.tail(), 30, "the second hears why")
    wait_for(lambda: "a second process of one machine is refused" in machines.leader.tail(), 5, "the leader says so")
    assert list(machines.rows().values()) == ["connected"]
    assert "not connected" not in first.tail()

    first.stop()
    wait_for(lambda: "registered with the leader" in second.tail(), 30, "the second takes over")


def test_a_machine_that_slept_past_its_lease_gets_work_again(machines: Machines):
    fellow = machines.start()
    rows = machines.until("connected", 30)
    fellow.popen.send_signal(signal.SIGSTOP)
    machines.until("lost", LEASE_S + 10)

    fellow.popen.send_signal(signal.SIGCONT)

    assert machines.until("connected", 30) == rows
