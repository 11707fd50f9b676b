"""Bytes of models from the leader. One deadline a read; retries are the fetcher's."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence

import grpc
from silentswarm.fellow.v1 import transfer_pb2
from silentswarm.fellow.v1.transfer_pb2_grpc import TransferStub
from swarm_core.errors import DeadlinePassed
from swarm_rpc.errors import error_of

from swarm_fellow.host.weights.sources import Chunk, ModelBytes, Wanted

# Larger than the control link's limit, so that manifests of many experts fit; as another channel argument it also
# gives transfers a TCP connection of their own, on which they cannot hold up tokens and heartbeats.
TRANSFER_MESSAGE_BYTES_MAX = 32 * 2**20
MANIFEST_TIMEOUT_S = 30.0
READ_TIMEOUT_S = 30.0
TRIES_MAX = 8
MEASURED_BYTES_MIN = 4 * 2**20  # a transfer of less says little of how wide its way is
WRONG_BYTES_MAX = 2  # times an item may come wrong: once by the wire, twice is its copy


class TransferClient:
    """The leader's Transfer service, as the fetcher's last source.

    dial: opens its channel, at the first call: by then the leader is known.
    """

    name = "the leader"
    crosses_network = True
    tries_max = TRIES_MAX

    def __init__(self, dial: Callable[[], grpc.aio.Channel]) -> None:
        self._dial = dial
        self._channel: grpc.aio.Channel | None = None
        self._metadata: tuple[tuple[str, str], ...] = ()
        self.down_bytes_per_s: float | None = None  # the most that a long enough transfer brought

    async def close(self) -> None:
        """Hang up."""
        if self._channel is not None:
            await self._channel.close()

    @property
    def _stub(self) -> TransferStub:
        if self._channel is None:
            self._channel = self._dial()
        return TransferStub(self._channel)

    def present(self, metadata: tuple[tuple[str, str], ...]) -> None:
        """Present this on every later call."""
        self._metadata = metadata

    async def manifest(self, model_id: str) -> bytes:
        """The manifest's JSON. Raises SwarmError."""
        request = transfer_pb2.GetManifestRequest(model_id=model_id)
        try:
            answer = await self._stub.GetManifest(request, timeout=MANIFEST_TIMEOUT_S, metadata=self._metadata)
        except grpc.RpcError as error:
            raise error_of(error) from error
        return answer.manifest_json

    def may_ask_again(self, model: ModelBytes, name: str, mismatches: int) -> bool:
        """Once more."""
        return mismatches < WRONG_BYTES_MAX

    async def fetch(self, model: ModelBytes, wanted: Sequence[Wanted]) -> AsyncGenerator[Chunk, None]:
        """The bytes asked for, in order. Raises SwarmError; DeadlinePassed when 30 s bring nothing."""
        request = transfer_pb2.FetchRequest(model_id=model.model_id, manifest_sha256=model.manifest_sha256)
        for want in wanted:
            named = {"tensor": want.name} if want.is_tensor else {"file": want.name}
            request.items.append(transfer_pb2.FetchItem(**named, offset=want.offset))
        call = self._stub.Fetch(request, metadata=self._metadata)
        began_s, brought = time.perf_counter(), 0
        try:
            while True:
                async with asyncio.timeout(READ_TIMEOUT_S):
                    chunk = await call.read()
                if chunk is grpc.aio.EOF:
                    return
                brought += len(chunk.data)
                yield Chunk(chunk.item, chunk.offset, chunk.data)
        except grpc.RpcError as error:
            raise error_of(error) from error
        except TimeoutError:
            raise DeadlinePassed(f"the leader sent nothing of {model.model_id} for {READ_TIMEOUT_S:g} s") from None
        finally:
            call.cancel()
            self._note_speed(brought, time.perf_counter() - began_s)

    def _note_speed(self, brought: int, took_s: float) -> None:
        """A transfer is over. The way is at least as wide as the fastest of them; short ones tell of their start."""
        if brought >= MEASURED_BYTES_MIN and took_s > 0:
            self.down_bytes_per_s = max(brought / took_s, self.down_bytes_per_s or 0.0)
