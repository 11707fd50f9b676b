"""How long a link between two fellows takes, before it is there: from what was measured of either. Pure."""

from swarm_leader.domain.capabilities import FellowFacts

# What a hop costs beyond compute on one network: 1.01 and 1.06 ms, measured for two stages of SmolLM2
# (docs/measurements/2026-11-many-requests.md).
HOP_MS = 1.03
# What a call within one machine takes of that each way: travel beyond it comes on top.
NEAR_MS = 0.5
TOKEN_BYTES = 100  # what the last stage sends the first one for a token


def link_ms(sender: FellowFacts, receiver: FellowFacts, is_relayed: bool, payload_bytes: float) -> float:
    """One way of one frame, with what both stages spend on it, in ms; what is not known of the way counts nothing."""
    travel = travel_ms(sender, receiver, is_relayed)
    bytes_per_s = _bytes_per_s(sender, receiver)
    transfer_ms = 1000 * payload_bytes / bytes_per_s if bytes_per_s else 0.0
    return HOP_MS + max(0.0, (travel or 0.0) - NEAR_MS) + transfer_ms


def travel_ms(sender: FellowFacts, receiver: FellowFacts, is_relayed: bool) -> float | None:
    """One way between two fellows, in ms; None is unknown.

    Half of what a link of theirs measured. Else by the leader: half of each one's own way there and back for a relayed
    link; a direct one takes no less than half their difference and no more than half their sum, so the middle.
    """
    measured = measured_round_trip_ms(sender, receiver, is_relayed)
    if measured is not None:
        return measured / 2
    one, other = sender.leader_round_trip_ms, receiver.leader_round_trip_ms
    if one is None or other is None:
        return None
    return (one + other) / 2 if is_relayed else max(one, other) / 2


def measured_round_trip_ms(one: FellowFacts, other: FellowFacts, is_relayed: bool) -> float | None:
    """There and back as a ring measured it, in either direction; None when none did."""
    for here, there in ((one, other), (other, one)):
        for link in here.link_times:
            if link.peer_id == there.fellow_id and link.is_relayed is is_relayed:
                return link.round_trip_ms
    return None


def _bytes_per_s(sender: FellowFacts, receiver: FellowFacts) -> float | None:
    """The narrower of the way out of one and the way into the other; None while neither is known."""
    known = [one for one in (sender.leader_up_bytes_per_s, receiver.leader_down_bytes_per_s) if one]
    return min(known, default=None)
