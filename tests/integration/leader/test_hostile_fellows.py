"""A fellow that joined and lies: of links, stages, covers and replies. It harms nobody but its own rings."""

import asyncio
import time

from silentswarm.core.v1 import hardware_pb2, reason_pb2, stage_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from silentswarm.fellow.v1 import inference_link_pb2 as serve_pb2
from silentswarm.leader.v1 import inference_pb2, resilience_pb2, resilience_pb2_grpc
from swarm_core.errors import Reason
from swarm_leader.flows.registry import DEVICES_MAX

from tests.integration.leader.covering_fellow import HOT, CoveringFellow
from tests.integration.leader.rig import MODEL, refusal_of, running_leader, text_of, until
from tests.integration.leader.scripted_fellow import ScriptedFellow, joined

BROKEN, CRASHED = link_pb2.STAGE_EVENT_KIND_LINK_BROKEN, link_pb2.STAGE_EVENT_KIND_CRASHED
EVICTED, IDLE = link_pb2.STAGE_EVENT_KIND_EVICTED, link_pb2.STAGE_EVENT_KIND_IDLE_UNLOADED
GB = 10**9


class Liar(ScriptedFellow):
    """Says what it is told to say of stages. beats stay off: they would say the truth."""

    def __init__(self, name: str, free_bytes: int = 10**6) -> None:
        super().__init__(name, free_bytes)
        self.tokens = 0
        self.takes_wire = True

    def tell(self, kind: int, message: str = "lie", **spec: object) -> None:
        """A stage's event, of any stage."""
        event = link_pb2.StageEvent(spec=stage_pb2.StageSpec(model_id=MODEL, **spec), kind=kind, message=message)
        self._up.put_nowait(link_pb2.ConnectRequest(stage_event=event))

    def tell_beat(self, **told: object) -> None:
        """A heartbeat of one's own."""
        self._up.put_nowait(link_pb2.ConnectRequest(heartbeat=link_pb2.Heartbeat(**told)))

    async def until_heard(self, rig) -> None:
        """Everything it said was taken: it says a number of devices after it, which the leader shows."""
        self.beats, self.tokens = False, self.tokens + 1
        count = 2 + self.tokens % 2
        self.tell_beat(devices=[self._device()] * count)
        known = rig.leader.registry.find(self.name)
        await until(lambda: len(known.hardware.devices) == count, "what it said was taken")

    async def _obey(self, signal: link_pb2.Signal) -> None:
        kind = signal.WhichOneof("kind")
        if kind == "wire" and not self.takes_wire:
            result = link_pb2.SignalResult(signal_id=signal.signal_id)
            result.failure.reason, result.failure.message = reason_pb2.REASON_LOAD_FAILED, "what stage?"
            self._up.put_nowait(link_pb2.ConnectRequest(result=result))
            return
        if kind == "load":
            self.takes_wire = True
        await super()._obey(signal)


class StubbornFellow(CoveringFellow):
    """Ends no cover."""

    refused = 0

    def _uncover(self, key):
        self.refused += 1
        result = link_pb2.SignalResult()
        result.failure.reason, result.failure.message = reason_pb2.REASON_INTERNAL, "no"
        return result


def pair() -> tuple[ScriptedFellow, Liar]:
    """Two fellows that get the stages of a ring of two; the second one may lie."""
    return ScriptedFellow("attic", 4 * GB), Liar("kitchen", 3 * GB)


def kept_reply(request_id: str, placement_id: str) -> serve_pb2.KeptReply:
    """A reply that a fellow says it kept."""
    return serve_pb2.KeptReply(request_id=request_id, placement_id=placement_id, epoch=1, first_sequence=1)


async def incidents_of(rig):
    """What the leader tells of incidents, newest first."""
    stub = resilience_pb2_grpc.ResilienceStub(rig.channel)
    return (await stub.ListIncidents(resilience_pb2.ListIncidentsRequest())).incidents


async def test_a_link_that_broke_in_an_epoch_that_never_was_is_no_news(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *pair()) as (_, kitchen):
        ready = await rig.load_ready(num_stages=2)
        for epoch in (0, ready.epoch + 1, 2**63):
            kitchen.tell(BROKEN, placement_id=ready.placement_id, stage_index=1, epoch=epoch)
        await kitchen.until_heard(rig)

        assert not rig.leader.board.get(MODEL).is_healing
        assert (await rig.get()).epoch == ready.epoch
        assert text_of([event async for event in rig.generate()]) == "Hi there"


async def test_a_link_that_breaks_as_soon_as_it_is_up_wires_a_ring_ever_less_often(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *pair()) as (_, kitchen):
        ready = await rig.load_ready(num_stages=2)
        placement, until_s = rig.leader.board.get(MODEL), time.monotonic() + 3
        while time.monotonic() < until_s:
            epoch = placement.record.epoch
            if placement.state == "ready" and not placement.is_healing:
                for _ in range(20):
                    kitchen.tell(BROKEN, placement_id=ready.placement_id, stage_index=1, epoch=epoch)
                await until(lambda: placement.is_healing or placement.record.epoch > epoch, "it was heard")  # noqa: B023
            await asyncio.sleep(0.01)
        after = await rig.until_state("READY")

        assert 5 <= after.epoch - ready.epoch <= 9
        assert text_of([event async for event in rig.generate()]) == "Hi there"


async def test_words_of_a_megabyte_are_cut_before_they_are_kept(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *pair()) as (_, kitchen):
        ready = await rig.load_ready(num_stages=2)
        words = "\x1b[31m\0\n" + "x" * 10**6 + " at the end"
        kitchen.tell(BROKEN, words, placement_id=ready.placement_id, stage_index=1, epoch=ready.epoch)
        await until(lambda: len(kitchen.wires()) > 1, "it is wired again")
        await rig.until_state("READY")
        incident = (await incidents_of(rig))[0]

        assert incident.ByteSize() < 10_000
        assert any("at the end" in step.what for step in incident.log)


async def test_nobody_believes_a_fellow_about_stages_that_are_another_one_s(tmp_path):
    liar = Liar("liar")
    async with running_leader(tmp_path) as rig, joined(rig.address, *pair(), liar):
        ready = await rig.load_ready(num_stages=2)
        for index in (0, 1, 2, 2**31):
            for kind in (BROKEN, CRASHED, EVICTED, IDLE, 77):
                liar.tell(kind, placement_id=ready.placement_id, stage_index=index, epoch=ready.epoch)
        await liar.until_heard(rig)
        after = await rig.get()
        told = {event.kind for event in rig.leader.watching.telemetry.timeline.waiting()}

        assert (after.state, after.epoch) == (ready.state, ready.epoch)
        assert not rig.leader.board.get(MODEL).is_healing
        assert "stage_crashed" not in told and not await incidents_of(rig)


async def test_what_says_that_a_stage_beyond_the_ring_is_unreachable_breaks_no_more_than_the_ring(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *pair()) as (_, kitchen):
        ready = await rig.load_ready(num_stages=2)
        kitchen.beat()
        await until(lambda: bool(kitchen.held), "it holds its stage")
        kitchen.report(BROKEN, "lie", peer_stage=2**32 - 1)
        await until(lambda: len(kitchen.wires()) > 1, "it is wired again")

        after = await rig.until_state("READY")
        assert (after.placement_id, [stage.fellow_name for stage in after.stages]) == (
            ready.placement_id,
            ["attic", "kitchen"],
        )


async def test_a_reply_that_one_fellow_kept_is_not_taken_over_by_another(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *pair()) as (attic, kitchen):
        ready = await rig.load_ready(num_stages=2)
        named = [kept_reply(f"lie-{number}", ready.placement_id) for number in range(2000)]
        await kitchen.drop_inference_link()
        kitchen.open_inference_link(kept_reply("stolen", ready.placement_id), *named)
        await attic.drop_inference_link()
        attic.open_inference_link(kept_reply("stolen", ready.placement_id), kept_reply("own", ready.placement_id))
        await until(lambda: rig.leader.replies.kept("own") is not None, "it is named")

        attic_id = attic.registered.fellow_id
        assert [rig.leader.replies.kept(one).fellow_id for one in ("stolen", "own")] == [attic_id, attic_id]
        asking = inference_pb2.ResumeRequest(request_id="lie-1")
        assert (await refusal_of(rig.inference.Resume(asking))).why is Reason.REPLY_NOT_FOUND
        assert text_of([event async for event in rig.generate(request_id="lie-2")]) == "Hi there"


async def test_events_of_a_reply_that_another_fellow_makes_are_dropped(tmp_path):
    attic, kitchen = pair()
    attic.replies_with = None
    async with running_leader(tmp_path) as rig, joined(rig.address, attic, kitchen):
        await rig.load_ready(num_stages=2)
        call = rig.generate(request_id="r1")
        await until(lambda: bool(attic.requests), "the request arrives")
        kitchen._reply(attic.requests[0], ["evil"])
        kitchen.say("r1", 1 << 62, failed={"message": "evil"})
        await kitchen.until_heard(rig)
        attic._reply(attic.requests[0], ["good"])

        assert text_of([event async for event in call]) == "good"


async def test_a_fellow_that_ends_no_cover_is_not_asked_without_a_pause(tmp_path):
    """It says that it covers a stage beyond the ring, and one of a placement that never was."""
    shed = StubbornFellow("shed")
    ring = CoveringFellow("attic", 3 * GB), CoveringFellow("kitchen", 2 * GB)
    async with running_leader(tmp_path, cover_reserve_mb=1) as rig, joined(rig.address, *ring, shed):
        ready = await rig.load_ready(num_stages=2, fellow_ids=["attic", "kitchen"])
        for placement_id, index in ((ready.placement_id, 7), ("never", 0)):
            spec = stage_pb2.StageSpec(placement_id=placement_id, stage_index=index)
            shed.covers[placement_id, index] = link_pb2.HeldCover(spec=spec, kind=HOT)
        shed.beat()
        await until(lambda: shed.refused >= 2, "the leader wants them ended")
        await until(lambda: "cover" in shed.kinds(), "and goes on")
        for _ in range(5):
            await rig.leader.covering.look_once()

        assert shed.refused == 2


async def test_a_heartbeat_of_ten_thousand_devices_is_cut(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *pair()) as (_, kitchen):
        nonsense = hardware_pb2.Device(
            device_index=2**32 - 1, kind="cuda", memory_free_bytes=2**63, read_bytes_per_s=float("nan")
        )
        kitchen.beats = False
        kitchen.tell_beat(devices=[kitchen._device(), *[nonsense] * 10_000])
        known = rig.leader.registry.find("kitchen")
        await until(lambda: len(known.hardware.devices) > 1, "it was taken")

        assert len(known.hardware.devices) == DEVICES_MAX


async def test_a_hot_cover_that_is_none_is_found_out_and_the_ring_goes_on(tmp_path):
    attic, kitchen, liar = *pair(), Liar("liar", 2 * GB)
    async with running_leader(tmp_path) as rig, joined(rig.address, attic, kitchen, liar):
        ready = await rig.load_ready(num_stages=2)
        liar.beats = liar.takes_wire = False
        spec = stage_pb2.StageSpec(placement_id=ready.placement_id, stage_index=1)
        lie = link_pb2.HeldCover(spec=spec, kind=HOT, ring_addresses=["10.0.0.66:1"], kv_tokens_measured=2**31)
        liar.tell_beat(devices=[liar._device()], covers=[lie])
        known = rig.leader.registry.find("liar")
        await until(lambda: bool(known.covers), "it is believed")

        kitchen.report(CRASHED, "killed")
        await until(lambda: bool(liar.wires()), "its cover is wanted")
        liar.tell_beat(devices=[liar._device()], covers=[lie])
        await until(lambda: "load" in liar.kinds() or kitchen.kinds().count("load") > 1, "the stage is loaded")
        after = await rig.until_state("READY")

        assert after.placement_id == ready.placement_id
        assert not known.covers


async def test_a_link_that_breaks_while_the_healing_before_is_written_down_is_heard(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *pair()) as (_, kitchen):
        ready = await rig.load_ready(num_stages=2)
        store, placement = rig.leader.store.incidents, rig.leader.board.get(MODEL)
        may_close, is_closing = asyncio.Event(), asyncio.Event()

        class SlowDisk:
            async def save(self, incident):
                if not incident.is_open:
                    is_closing.set()
                    await may_close.wait()
                await store.save(incident)

        rig.leader.healing._incidents._store = SlowDisk()
        for epoch in (ready.epoch, ready.epoch + 1):
            kitchen.tell(BROKEN, placement_id=ready.placement_id, stage_index=1, epoch=epoch)
            await asyncio.wait_for(is_closing.wait(), 10)
        await until(lambda: placement.record.epoch == ready.epoch + 2, "it is wired once more")
        may_close.set()
        healed = await rig.until_state("READY")

    assert (healed.placement_id, healed.epoch) == (ready.placement_id, ready.epoch + 2)
