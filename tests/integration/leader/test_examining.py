"""How long a fellow has to say whether its stage lives."""

import asyncio
import time

from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from swarm_leader.flows.examining import CHECK_S, Examined, Examining

from tests.integration.leader.rig import MODEL, running_leader
from tests.integration.leader.scripted_fellow import ScriptedFellow, declare, joined


class SlowFellow(ScriptedFellow):
    """Answers a CHECK after a while. is_told: it says meanwhile that it waits for its stage."""

    def __init__(self, name: str, answers_after_s: float, is_told: bool) -> None:
        super().__init__(name, capabilities=declare(check={}))
        self.answers_after_s = answers_after_s
        self.is_told = is_told

    async def _obey(self, signal: link_pb2.Signal) -> None:
        if signal.WhichOneof("kind") == "check":
            if self.is_told:
                progress = link_pb2.SignalProgress(signal_id=signal.signal_id, step="answer", total=1)
                self._up.put_nowait(link_pb2.ConnectRequest(progress=progress))
            await asyncio.sleep(self.answers_after_s)
        await super()._obey(signal)


async def examine(tmp_path, *fellows: SlowFellow) -> tuple[Examined, float]:
    """One look at a ring over these fellows, and how long it took."""
    async with running_leader(tmp_path) as rig, joined(rig.address, *fellows):
        await rig.load_ready(num_stages=len(fellows), fellow_ids=[one.name for one in fellows])
        placement = rig.leader.board.get(MODEL)
        assert placement is not None
        began_s = time.monotonic()
        examined = await Examining(rig.leader.registry, rig.leader.signals).examine(placement, ())
        return examined, time.monotonic() - began_s


async def test_a_fellow_that_says_that_it_waits_for_its_stage_is_waited_for(tmp_path):
    examined, _ = await examine(tmp_path, SlowFellow("attic", CHECK_S + 0.6, is_told=True))

    assert [one.is_alive for one in examined.facts] == [True]
    assert examined.silent == frozenset()


async def test_one_that_says_nothing_is_silent_after_two_seconds(tmp_path):
    examined, took_s = await examine(tmp_path, SlowFellow("attic", 30, is_told=False))

    assert [one.is_alive for one in examined.facts] == [False]
    assert len(examined.silent) == 1 and CHECK_S <= took_s < CHECK_S + 1.5


async def test_one_that_only_says_that_it_waits_is_silent_after_four(tmp_path):
    examined, took_s = await examine(tmp_path, SlowFellow("attic", 30, is_told=True))

    assert [one.is_alive for one in examined.facts] == [False]
    assert 3.9 < took_s < 5.5
