"""What the stages of a ring prove themselves with in one epoch. Made here, told to both ends, kept nowhere."""

from collections.abc import Callable, Sequence

from silentswarm.core.v1 import link_pb2
from swarm_core.errors import CapabilityMissing
from swarm_rpc.tls import fellow_name

from swarm_leader.flows.registry import Fellow
from swarm_leader.relay.ticket import Tickets

SECRET_BYTES = 32


class LinkKeys:
    """Makes the keys of rings.

    draw: random bytes, as many as asked for. has_tls: links are encrypted, with certificates of this leader.
    is_enforced: whether a ring without proofs is refused now; with TLS it always is.
    """

    def __init__(
        self, tickets: Tickets, draw: Callable[[int], bytes], has_tls: bool, is_enforced: Callable[[], bool]
    ) -> None:
        self._tickets = tickets
        self._draw = draw
        self._has_tls = has_tls
        self._is_enforced = is_enforced

    def check(self, fellows: Sequence[Fellow]) -> None:
        """Refuse a ring that cannot prove itself where that is asked for. Raises CapabilityMissing with the name."""
        if len(fellows) < 2 or not (self._has_tls or self._is_enforced()):
            return
        for fellow in fellows:
            if not fellow.capabilities.link_keys:
                raise CapabilityMissing(
                    f"fellow {fellow.name} cannot prove itself on links, and this leader asks for it; update it",
                    fellow=fellow.name,
                    capability="link_keys",
                )
            if self._has_tls and not fellow.has_certificate:
                raise CapabilityMissing(
                    f"fellow {fellow.name} has no certificate, and links of this swarm are encrypted; restart it",
                    fellow=fellow.name,
                    capability="link_keys",
                )

    def make(self, placement_id: str, epoch: int, fellows: Sequence[Fellow]) -> list[link_pb2.RingKeys | None]:
        """One for each stage, in ring order; all None when not every fellow can, or nobody has a neighbour."""
        count = len(fellows)
        if count < 2 or not all(fellow.capabilities.link_keys for fellow in fellows):
            return [None] * count
        secrets = [self._draw(SECRET_BYTES) for _ in fellows]  # of the link that begins at the stage
        channels = [channel_of(index, count) for index in range(count)]
        names = [fellow_name(fellow.fellow_id) if self._has_tls else "" for fellow in fellows]
        return [
            link_pb2.RingKeys(
                next_secret=secrets[index],
                previous_secret=secrets[index - 1],
                next_name=names[(index + 1) % count],
                previous_name=names[index - 1],
                sender_ticket=self._tickets.ticket(placement_id, channels[index], epoch, "sender"),
                receiver_ticket=self._tickets.ticket(placement_id, channels[index - 1], epoch, "receiver"),
            )
            for index in range(count)
        ]


def channel_of(stage_index: int, stage_count: int) -> str:
    """The relay channel a stage sends on, as relay.v1.Attach names it."""
    if stage_index == stage_count - 1:
        return "tok"
    return "act" if stage_index == 0 else f"act{stage_index}"
