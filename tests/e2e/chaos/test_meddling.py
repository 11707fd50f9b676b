"""What people do to a swarm while it brings a ring back: it is answered as documented and disturbs nobody."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import grpc
import psutil
import pytest
from silentswarm.core.v1 import weights_pb2
from silentswarm.leader.v1 import fleet_pb2, fleet_pb2_grpc, serving_pb2, serving_pb2_grpc

from tests.e2e.chaos.background import Background
from tests.e2e.chaos.driver import Driver, hear_alone, lives
from tests.e2e.chaos.faults import Struck, kill_machine
from tests.e2e.chaos.fleet import (
    MadeFleet,
    connected,
    get,
    holders,
    incidents,
    is_ready,
    load,
    made_fleet,
    stage_processes,
    status,
)
from tests.e2e.chaos.streams import PROMPTS, Stream
from tests.e2e.chaos.talk import Talk, Texts, begin
from tests.e2e.chaos.wear import strays
from tests.e2e.conftest import MODEL
from tests.e2e.swarm import wait_for

TOKENS, STAGES = 48, 3
BACK_S, SAID_S, GONE_S, ASK_S = 60.0, 10.0, 10.0, 30.0
pytestmark = pytest.mark.slow


@dataclass
class Heal:
    """A ring of which a machine was killed, under streams, while it is brought back."""

    fleet: MadeFleet
    talk: Talk
    struck: Struck
    lost: str
    alone: Texts

    def see_through(self) -> None:
        """Nobody heard of anything, and the model serves without the machine."""
        self.talk.finish()
        wait_for(lambda: is_ready(self.fleet), BACK_S, "the model")
        assert self.talk.errors() == []
        assert self.talk.wrong(self.alone) == []
        assert self.lost not in holders(self.fleet)
        (seen,) = self.incidents()
        assert seen["outcome"] == "moved"

    def incidents(self) -> list[dict]:
        """Since the machine was killed."""
        return incidents(self.fleet, self.struck.at_unix_s - 0.1)


@pytest.fixture(scope="module")
def driver(models_root, tmp_path_factory) -> Iterator[Driver]:
    """Three stages on four fellows; without spares, so that a heal takes long enough to do something meanwhile."""
    prompts, folder = PROMPTS[:4], tmp_path_factory.mktemp("meddling")
    with Background() as background, made_fleet(folder, models_root, background, 4, SWARM_STAGE_SPARE="off") as fleet:
        load(fleet, STAGES, "p2p")
        alone = hear_alone(fleet, background, prompts, TOKENS)
        yield Driver(fleet, background, prompts, TOKENS, stages=STAGES, fellows=4, transport="p2p", alone=alone)


@pytest.fixture
def heal(driver: Driver) -> Heal:
    """A machine of the middle stage is gone, and the leader knows."""
    fleet = driver.fleet
    driver.make_whole()
    talk = begin(fleet, driver.background, [Stream(prompt) for prompt in driver.prompts], TOKENS)
    lost = holders(fleet)[1]
    struck = kill_machine(fleet, lost)
    wait_for(lambda: status(fleet).get("state") == "PLACEMENT_STATE_RECOVERING", BACK_S, "a heal", every_s=0.02)
    return Heal(fleet, talk, struck, lost, {(prompt, None): text for prompt, text in driver.alone.items()})


@pytest.fixture(scope="module")
def channel(driver: Driver) -> Iterator[grpc.Channel]:
    """To the leader."""
    with grpc.insecure_channel(driver.fleet.grpc) as channel:
        yield channel


@pytest.fixture(scope="module")
def serving(channel: grpc.Channel) -> serving_pb2_grpc.ServingStub:
    return serving_pb2_grpc.ServingStub(channel)


@pytest.fixture(scope="module")
def people(channel: grpc.Channel) -> fleet_pb2_grpc.FleetStub:
    """What is done to fellows."""
    return fleet_pb2_grpc.FleetStub(channel)


@pytest.mark.timeout(600)
def test_a_lost_machine_that_is_deleted_during_the_heal_is_forgotten_and_may_join_again(heal: Heal, people):
    fleet = heal.fleet
    people.DeleteFellow(fleet_pb2.DeleteFellowRequest(fellow_id=heal.lost), timeout=ASK_S)
    assert heal.lost not in [row["name"] for row in get(fleet, "/api/v1/workers")["fellows"]]
    heal.see_through()

    fleet.bring_back()
    wait_for(lambda: heal.lost in connected(fleet), BACK_S, "the machine again")
    assert len(get(fleet, "/api/v1/workers")["fellows"]) == 4


@pytest.mark.timeout(600)
def test_a_machine_that_is_deleted_while_it_serves_ends_no_stream(driver: Driver, people):
    """Its stages end, a standby takes over, and it joins again when it is started again."""
    fleet = driver.fleet
    driver.make_whole()
    talk = begin(fleet, driver.background, [Stream(prompt) for prompt in driver.prompts], TOKENS)
    gone, deleted_s, deleted_unix_s = holders(fleet)[1], time.monotonic(), time.time()
    people.DeleteFellow(fleet_pb2.DeleteFellowRequest(fellow_id=gone), timeout=ASK_S)
    talk.finish()
    wait_for(lambda: is_ready(fleet), BACK_S, "the model")
    print(f"pause {talk.pause_s(deleted_s):.1f} s, {holders(fleet)}")

    assert talk.errors() == []
    assert talk.wrong({(prompt, None): text for prompt, text in driver.alone.items()}) == []
    assert gone not in holders(fleet)
    (seen,) = incidents(fleet, deleted_unix_s - 0.1)
    assert (seen["outcome"], [stage["lost_fellow"] for stage in seen["stages"]]) == ("moved", [gone])
    assert stage_processes(fleet.pid(gone)) == []
    fleet.processes[gone].stop()
    fleet.bring_back()
    wait_for(lambda: gone in connected(fleet), BACK_S, "the machine again")
    assert len(get(fleet, "/api/v1/workers")["fellows"]) == 4


@pytest.mark.timeout(600)
def test_a_machine_of_a_ring_that_heals_is_not_drained_and_is_afterwards(heal: Heal, people):
    fleet = heal.fleet
    stays = holders(fleet)[0]
    with pytest.raises(grpc.RpcError) as refused:
        people.DrainFellow(fleet_pb2.DrainFellowRequest(fellow_id=stays), timeout=ASK_S)
    assert "try again when it is ready" in refused.value.details()
    heal.see_through()

    fleet.bring_back()
    wait_for(lambda: heal.lost in connected(fleet), BACK_S, "the machine again")
    try:
        people.DrainFellow(fleet_pb2.DrainFellowRequest(fellow_id=stays), timeout=ASK_S)
        wait_for(lambda: is_ready(fleet) and stays not in holders(fleet), BACK_S, "an empty machine", every_s=0.2)
    finally:
        people.UndrainFellow(fleet_pb2.UndrainFellowRequest(fellow_id=stays), timeout=ASK_S)


@pytest.mark.timeout(600)
def test_the_standby_that_takes_over_may_be_drained_meanwhile_and_the_ring_still_comes_back(heal: Heal, people):
    """Refused while it holds the stage already; else the ring waits for somebody, and the standby stays empty."""
    fleet = heal.fleet
    standby = next(name for name in fleet.names() if name.startswith("fellow-") and name not in before_and(heal))
    try:
        people.DrainFellow(fleet_pb2.DrainFellowRequest(fellow_id=standby), timeout=ASK_S)
        is_drained = True
    except grpc.RpcError as refused:
        assert "try again when it is ready" in refused.details()
        is_drained = False
    print(f"drained: {is_drained}")
    if is_drained:
        people.UndrainFellow(fleet_pb2.UndrainFellowRequest(fellow_id=standby), timeout=ASK_S)
    heal.see_through()


def before_and(heal: Heal) -> set[str]:
    """Who held a stage before the machine was killed."""
    kept = holders(heal.fleet)
    return {heal.lost, kept[0], kept[2]}


@pytest.mark.timeout(600)
def test_the_same_load_during_a_heal_is_answered_with_what_there_is_and_another_one_is_a_conflict(heal: Heal, serving):
    same = serving_pb2.LoadModelRequest(model_id=MODEL, num_stages=STAGES, transport="TRANSPORT_P2P")
    answer = serving.LoadModel(same, timeout=ASK_S)
    assert answer.state == serving_pb2.PLACEMENT_STATE_RECOVERING
    for other in (
        serving_pb2.LoadModelRequest(model_id=MODEL, num_stages=2),
        serving_pb2.LoadModelRequest(model_id=MODEL, quantization=weights_pb2.Quantization(method="int8")),
    ):
        with pytest.raises(grpc.RpcError) as refused:
            serving.LoadModel(other, timeout=ASK_S)
        assert "unload it to load it otherwise" in refused.value.details()
    heal.see_through()


@pytest.mark.timeout(600)
def test_an_unload_during_a_heal_ends_it_tells_every_client_and_gives_the_memory_back(heal: Heal, serving, driver):
    fleet = heal.fleet
    stages = [stage for name in fleet.names() if name in connected(fleet) for stage in stage_processes(fleet.pid(name))]
    assert stages
    asked_s = time.monotonic()
    serving.UnloadModel(serving_pb2.UnloadModelRequest(model_id=MODEL), timeout=ASK_S)
    answered_s = time.monotonic() - asked_s
    heal.talk.finish()
    told_s = max(stream.over_s or 0.0 for stream in heal.talk.streams) - asked_s
    wait_for(lambda: not any(map(lives, stages)), GONE_S, "memory that is back")
    wait_for(lambda: strays(fleet) == [] and not any_stage(fleet), GONE_S, "no stage at all")
    gone_s = time.monotonic() - asked_s
    print(f"answered {answered_s:.1f} s, told {told_s:.1f} s, gone {gone_s:.1f} s: {heal.talk.errors()}")

    assert len(heal.talk.errors()) == len(heal.talk.streams)
    assert all("unloaded on request" in error for error in heal.talk.errors())
    assert told_s <= SAID_S
    assert wait_for(lambda: all(one.get("closed_s") for one in heal.incidents()), SAID_S, "its end")
    assert [one["outcome"] for one in heal.incidents()] == ["ended"]
    assert status(fleet)["state"] == "PLACEMENT_STATE_UNLOADED"
    fleet.bring_back()
    wait_for(lambda: heal.lost in connected(fleet), BACK_S, "the machine again")
    time.sleep(2)  # somebody joined: nothing that was unloaded comes back by that
    assert status(fleet)["state"] == "PLACEMENT_STATE_UNLOADED"
    driver.make_whole()


def any_stage(fleet: MadeFleet) -> list[psutil.Process]:
    """Of the machines that are there."""
    return [one for name in connected(fleet) for one in stage_processes(fleet.pid(name))]
