"""What becomes of a reply whose fellow comes back, when nobody wants it any more but nobody has closed it either."""

from silentswarm.fellow.v1 import inference_link_pb2 as link_pb2
from swarm_core.errors import FellowLost
from swarm_leader.flows.replies import InferenceLink, Replies


async def test_a_reply_that_was_left_while_its_fellow_was_away_is_cancelled_there_also_before_it_is_closed():
    """Its reader may be stuck at a slow client when the fellow is back: closing it comes too late to tell anybody."""
    replies = Replies(events_max=8, keep_s=30.0)
    older, newer = (InferenceLink("fellow-1", "attic") for _ in range(2))
    await replies.attach(older)
    request = link_pb2.ReplyRequest(request_id="r1", placement_id="p1", epoch=3, keep_ms=30_000)
    reply = replies.open(older, request)
    older.end(FellowLost("its inference link broke"))
    assert reply.is_adrift
    reply.abandon()

    await replies.attach(newer, [link_pb2.KeptReply(request_id="r1", placement_id="p1", epoch=3, first_sequence=1)])
    told = await newer.next()
    replies.close(reply)

    assert told.cancel.request_id == "r1" and replies.is_empty
    assert replies.kept("r1") is None
