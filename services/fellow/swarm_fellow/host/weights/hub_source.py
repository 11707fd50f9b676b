"""Tensors from a hub: byte ranges of the files of one commit, where a model says that its weights are there."""

from collections.abc import AsyncGenerator, Sequence
from urllib.parse import quote

import aiohttp
from swarm_core.errors import LoadFailed, Unavailable
from swarm_core.servable_parts import HubOrigin

from swarm_fellow.domain.hub_ranges import FileRange, Stretch, plan_ranges
from swarm_fellow.host.weights.hub_door import HubAccess, HubDoor
from swarm_fellow.host.weights.sources import Chunk, ModelBytes, Wanted

TRIES_MAX = 3  # the leader comes after it
WRONG_BYTES_MAX = 2
HUBS_MAX = 8
READ_BYTES = 2**18
_AGAIN = {408, 425, 429, 500, 502, 503, 504}


class HubSource:
    """A hub, as one of the fetcher's sources. access: what the operator of this machine says of hubs."""

    name = "the hub"
    crosses_network = True
    tries_max = TRIES_MAX

    def __init__(self, access: HubAccess) -> None:
        self._access = access
        self._doors: dict[str, HubDoor] = {}

    async def close(self) -> None:
        """Hang up."""
        for door in self._doors.values():
            await door.close()

    async def tensors_here(self, model: ModelBytes, names: Sequence[str]) -> set[str]:
        """All of a model whose weights are there."""
        return set() if model.manifest.origin is None else set(names)

    def may_ask_again(self, model: ModelBytes, name: str, mismatches: int) -> bool:
        """Once more."""
        return mismatches < WRONG_BYTES_MAX

    async def fetch(self, model: ModelBytes, wanted: Sequence[Wanted]) -> AsyncGenerator[Chunk, None]:
        """The bytes asked for, file by file.

        Raises Unavailable when the hub is down, stalls or ends too early, LoadFailed when it refuses or answers
        something else than what was asked.
        """
        origin = model.manifest.origin
        assert origin is not None
        stretches = []
        for item, want in enumerate(wanted):
            entry = model.manifest.tensors[want.name]
            left = entry.size_bytes - want.offset
            stretches.append(Stretch(item, entry.file, entry.begin + want.offset, want.offset, left))
        for span in plan_ranges(stretches):
            async for chunk in self._fetch_range(origin, span):
                yield chunk

    async def _fetch_range(self, origin: HubOrigin, span: FileRange) -> AsyncGenerator[Chunk, None]:
        endpoint = self._access.endpoint_for(origin.endpoint)
        if endpoint not in self._doors and len(self._doors) >= HUBS_MAX:
            raise LoadFailed(f"models name more than {HUBS_MAX} hubs")
        door = self._doors.setdefault(endpoint, HubDoor(self._access, endpoint))
        path = f"{origin.repository}/resolve/{origin.commit}/{quote(span.file)}"
        headers = {"Range": f"bytes={span.begin}-{span.end - 1}", "Accept-Encoding": "identity"}
        async with door.get(path, headers) as response:
            _check_answer(response, span, origin)
            for stretch in span.stretches:
                offset, end = stretch.offset, stretch.offset + stretch.size_bytes
                while offset < end:
                    payload = await response.content.read(min(READ_BYTES, end - offset))  # what is there by now
                    if not payload:
                        raise Unavailable("the hub's answer ends too early")
                    yield Chunk(stretch.item, offset, payload)
                    offset += len(payload)


def _check_answer(response: aiohttp.ClientResponse, span: FileRange, origin: HubOrigin) -> None:
    """That this is the range asked for and nothing else. Raises Unavailable (worth another try), LoadFailed."""
    where = f"{span.file} of {origin.repository}"
    status = response.status
    if status in _AGAIN:
        raise Unavailable(f"the hub answers {status} for {where}")
    if status in (401, 403):
        raise LoadFailed(f"the hub refuses {where} ({status}); a private or gated model needs HF_TOKEN on this machine")
    asked = f"bytes {span.begin}-{span.end - 1}/"
    said = response.headers.get("Content-Range", "")
    encoding = response.headers.get("Content-Encoding", "identity")
    length = response.content_length
    is_asked_for = status == 206 and said.startswith(asked) and encoding == "identity"
    if is_asked_for and length in (None, span.end - span.begin):
        return
    if status == 200:
        raise LoadFailed(f"the hub sends the whole of {where} where bytes {span.begin}-{span.end - 1} were asked for")
    raise LoadFailed(
        f"the hub answers {status} for {asked.strip('/')} of {where}, with {said[:80] or 'no'} as the range, "
        f"{length} bytes, encoding {encoding[:20]}"
    )
