"""What people read when a link breaks."""

import asyncio

import pytest
from silentswarm.core.v1 import stage_pb2
from swarm_core.errors import LinkBroken
from swarm_stage.engine.engine import RingBroke
from swarm_stage.engine.inbox import Inbox
from swarm_stage.ring.link import RingPlace
from swarm_stage.ring.wiring import WireOrder, Wiring

DIRECT = stage_pb2.ROUTE_DIRECT


async def test_a_reply_that_a_broken_link_ends_says_where_why_and_what_to_do():
    """It reaches callers of the API, who know nothing of epochs."""
    inbox = Inbox(asyncio.get_running_loop())
    wiring = Wiring(RingPlace("p", 0, 2), inbox, lambda epoch, why, peer_stage: None)
    with pytest.raises(LinkBroken):
        await wiring.join(WireOrder(1, DIRECT, DIRECT, ("127.0.0.1:1",), "", timeout_s=5.0))
    await wiring.close()
    broke = next(item.error for item in inbox.take(0) if isinstance(item, RingBroke))

    assert broke.message.startswith("the ring broke at stage 0 (stage 1 is not reachable directly")
    assert broke.message.endswith("; it is wired anew, try again soon")
