"""Stages of a ring without a model: links over real sockets, with keys and certificates as a leader gives them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
from silentswarm.core.v1 import stage_pb2
from silentswarm.ring.v1 import ring_pb2, ring_pb2_grpc
from swarm_leader.trust.authority import Authority, Purpose
from swarm_rpc.channel import dial
from swarm_rpc.server import listen, make_server
from swarm_rpc.tls import Trust, fellow_name
from swarm_stage.engine.engine import Arrived
from swarm_stage.engine.inbox import Inbox
from swarm_stage.ring.certificates import Certificates, open_certificates
from swarm_stage.ring.direct import MESSAGE_BYTES_MAX, RingServicer
from swarm_stage.ring.link import LinkKeys, RingPlace
from swarm_stage.ring.proof import hello_proof
from swarm_stage.ring.wiring import WireOrder, Wiring
from swarm_stage.serve.runner import LINKS_MAX, RING_LIMITS

DIRECT = stage_pb2.ROUTE_DIRECT
SECRETS = [bytes([index + 1]) * 32 for index in range(8)]  # of the link that begins at stage `index`


def write_certificates(authority: Authority, folder: Path, fellow_id: str) -> str:
    """The folder of one machine: node.pem, node.key, roots.pem."""
    folder.mkdir(parents=True)
    identity = authority.issue_identity([fellow_name(fellow_id)], Purpose(server=True, client=True))
    (folder / "node.pem").write_bytes(identity.certificate)
    (folder / "node.key").write_bytes(identity.key)
    (folder / "roots.pem").write_bytes(authority.roots)
    return str(folder)


def keys_of(index: int, count: int, has_tls: bool = True) -> LinkKeys:
    """What the leader tells stage `index`; its fellow is called f<index>."""
    following, before = (index + 1) % count, (index - 1) % count
    return LinkKeys(
        next_secret=SECRETS[index],
        previous_secret=SECRETS[before],
        next_name=fellow_name(f"f{following}") if has_tls else "",
        previous_name=fellow_name(f"f{before}") if has_tls else "",
    )


class LinkedStage:
    """One stage's links, with an inbox nobody empties."""

    def __init__(self, index: int, count: int, certificates: Certificates | None) -> None:
        self.inbox = Inbox(asyncio.get_running_loop())
        self.faults: list[tuple[int, str]] = []
        self.wiring = Wiring(
            RingPlace("ring", index, count),
            self.inbox,
            lambda epoch, why, peer_stage: self.faults.append((epoch, why)),
            None,
            certificates,
        )
        self.server = make_server(MESSAGE_BYTES_MAX, streams_max=LINKS_MAX, limits=RING_LIMITS)
        ring_pb2_grpc.add_RingServicer_to_server(RingServicer(self.wiring.place, self.wiring), self.server)
        self.port = listen(self.server, "127.0.0.1:0", certificates.credentials() if certificates else None)
        self.address = f"127.0.0.1:{self.port}"
        self.arrived: list[ring_pb2.FrameBatch] = []

    async def arrives(self, count: int, within_s: float = 5.0) -> list[ring_pb2.FrameBatch]:
        """The first `count` batches that reach the engine."""
        async with asyncio.timeout(within_s):
            while len(self.arrived) < count:
                self.arrived += [item.batch for item in self.inbox.take(0) if isinstance(item, Arrived)]
                await asyncio.sleep(0.01)
        return self.arrived[:count]


@asynccontextmanager
async def linked(tls_dirs: Sequence[str]) -> AsyncIterator[list[LinkedStage]]:
    """One stage for each folder; "" is a stage without certificates."""
    ring = [LinkedStage(index, len(tls_dirs), open_certificates(folder)) for index, folder in enumerate(tls_dirs)]
    for stage in ring:
        await stage.server.start()
    try:
        yield ring
    finally:
        for stage in ring:
            await stage.wiring.close()
            await stage.server.stop(0)


def order(
    ring: Sequence[LinkedStage], index: int, epoch: int, keys: LinkKeys | None, timeout_s: float = 5
) -> WireOrder:
    """Direct links both ways."""
    following = ring[(index + 1) % len(ring)]
    return WireOrder(epoch, DIRECT, DIRECT, (following.address,), "", timeout_s, keys=keys)


async def join_all(ring: Sequence[LinkedStage], epoch: int, has_tls: bool = True) -> None:
    """All stages join at once, with the keys of a leader. Raises what the first one raises."""
    count = len(ring)
    await asyncio.gather(
        *(stage.wiring.join(order(ring, i, epoch, keys_of(i, count, has_tls))) for i, stage in enumerate(ring))
    )


def hello(epoch: int, secret: bytes | None, from_stage: int = 0, to_stage: int = 1) -> ring_pb2.Hello:
    """A hello as the previous stage would say it; None: without a proof."""
    said = ring_pb2.Hello(wire_version=1, placement_id="ring", epoch=epoch, from_stage=from_stage, to_stage=to_stage)
    if secret is not None:
        said.proof = hello_proof(secret, said)
    return said


async def say(address: str, said: ring_pb2.Hello, trust: Trust | None = None) -> ring_pb2.Welcome:
    """Say hello and hang up. Raises grpc.RpcError when it is refused."""
    async with dial(address, MESSAGE_BYTES_MAX, trust) as channel:
        call = ring_pb2_grpc.RingStub(channel).Link(timeout=5)
        try:
            await call.write(ring_pb2.LinkRequest(hello=said))
            answer = await call.read()
        except asyncio.InvalidStateError:
            answer = await call.read()
        assert answer is not grpc.aio.EOF
        call.cancel()
        return answer.welcome
