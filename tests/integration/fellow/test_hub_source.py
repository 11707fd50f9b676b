"""Slices from a hub: only their bytes, over every way an answer can go wrong, and nowhere a hub must not lead."""

import re
import socket
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from swarm_core.errors import Reason, ServableCorrupt, SwarmError
from swarm_fellow.host.weights.hub_door import HubAccess
from swarm_fellow.host.weights.hub_source import HubSource

from tests.integration.fellow.checkpoint import Checkpoint, Home, LeaderOf
from tests.integration.fellow.scripted_hub import ScriptedHub, serving

TOKEN = "hf_secret"


@pytest.fixture
async def hub() -> AsyncIterator[ScriptedHub]:
    async with serving(ScriptedHub(Checkpoint().files)) as hub:
        yield hub


@pytest.fixture
async def home(hub: ScriptedHub, tmp_path: Path) -> AsyncIterator[Home]:
    """A fellow whose operator set HF_ENDPOINT to the hub."""
    source = HubSource(HubAccess(hub.endpoint, TOKEN, read_timeout_s=0.2))
    checkpoint = Checkpoint()
    yield Home(tmp_path / "cache", checkpoint, [source], LeaderOf(checkpoint))
    await source.close()


async def refused(home: Home) -> SwarmError:
    """The refusal of a fetch, with nothing wrong left behind."""
    with pytest.raises(SwarmError) as refusal:
        await home.fetch()
    assert home.holds_nothing_wrong()
    return refusal.value


async def test_neighbouring_tensors_come_in_one_range_and_no_other_byte_is_asked_for(home: Home, hub: ScriptedHub):
    fetched = await home.fetch(1, 3)

    slice_bytes = home.checkpoint.slice_bytes(1, 3)
    small_bytes = fetched.fetched_bytes - slice_bytes
    assert hub.sent_bytes == slice_bytes and 0 < small_bytes < 100
    assert len(hub.ranges) == 2  # one for each file: layers 1 and 2 lie side by side in both
    assert home.leader.asked == []


async def test_a_new_cut_fetches_only_what_moved(home: Home, hub: ScriptedHub):
    """From two stages to three: layers 2 and 3 become 1 and 2."""
    await home.fetch(2, 4)
    before = hub.sent_bytes
    moved = await home.fetch(1, 3)

    new = set(home.checkpoint.names(1, 3)) - set(home.checkpoint.names(2, 4))
    assert hub.sent_bytes - before == moved.fetched_bytes == sum(len(home.checkpoint.tensors[name]) for name in new) > 0


@pytest.mark.parametrize("fault", ["cut 5000", "cut 0", "stall", "503", "429"])
async def test_an_answer_that_breaks_off_goes_on_where_it_broke(home: Home, hub: ScriptedHub, fault: str):
    hub.faults = [fault]
    await home.fetch()

    assert home.leader.asked == []
    assert hub.sent_bytes <= 1.05 * home.checkpoint.slice_bytes(0, 4)


@pytest.mark.parametrize("fault", ["flip", "swap"])
async def test_wrong_bytes_are_fetched_once_more_and_never_loaded(home: Home, hub: ScriptedHub, fault: str):
    hub.faults = [fault]
    await home.fetch()

    assert home.leader.asked == [] and len(hub.ranges) > 2


@pytest.mark.parametrize("fault", ["flip", "swap", "whole", "other", "short", "gzip", "stall", "cut 100", "404", "403"])
async def test_a_hub_that_stays_wrong_is_refused_and_the_leader_has_the_last_word(
    home: Home, hub: ScriptedHub, fault: str
):
    hub.always = fault
    refusal = await refused(home)

    assert refusal.why is Reason.SERVABLE_CORRUPT and "keeps no weights" in refusal.message
    assert "asked before: the hub: " in refusal.message
    assert hub.sent_bytes <= 3 * home.checkpoint.slice_bytes(0, 4)


@pytest.mark.parametrize("fault", ["flip", "whole", "other", "stall", "404"])
async def test_what_the_hub_does_not_bring_comes_from_a_leader_that_has_it(home: Home, hub: ScriptedHub, fault: str):
    hub.always = fault
    home.leader = LeaderOf(home.checkpoint, has_weights=True)
    await home.fetch()

    assert set(home.leader.asked) <= set(home.checkpoint.tensors) and home.leader.asked


async def test_a_hub_that_is_down_leaves_the_leader_s_answer(home: Home, hub: ScriptedHub):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        down = HubSource(HubAccess(f"http://127.0.0.1:{nobody.getsockname()[1]}"))
        home.near = [down]
        refusal = await refused(home)
    await down.close()

    assert isinstance(refusal, SwarmError) and refusal.why is Reason.SERVABLE_CORRUPT
    assert "cannot be read" in refusal.message and "in 3 tries" in refusal.message


async def test_the_leader_s_answer_alone_is_raised_where_no_hub_was_asked(home: Home):
    home.near = []
    with pytest.raises(ServableCorrupt, match=r"keeps no weights of org/tiny$"):
        await home.fetch()


async def test_a_redirect_to_another_host_gets_the_range_but_not_the_token(home: Home, hub: ScriptedHub):
    async with serving(ScriptedHub(hub.files)) as storage:
        same_path = "/org/tiny/resolve/0123456789abcdef0123456789abcdef01234567/model-0.safetensors"
        hub.faults = [f"to {storage.endpoint}{same_path}"]
        refusal = await refused(home)

    assert storage.ranges == []
    assert "another host than the hub, without TLS" in refusal.message


async def test_a_redirect_on_the_hub_itself_is_followed_with_the_token_and_not_for_ever(home: Home, hub: ScriptedHub):
    hub.faults = ["to "]
    await home.fetch()
    tokens = set(hub.tokens)
    (home.root / "tensors").rename(home.root / "gone")
    hub.always = "to "
    refusal = await refused(home)

    assert tokens == {f"Bearer {TOKEN}"}
    assert "redirects more than 5 times" in refusal.message


@pytest.mark.parametrize(
    "place",
    ["https://127.0.0.1:1/x", "https://10.0.0.1/x", "https://[::1]/x", "https://0x7f.1/x", "file:///etc/passwd"],
)
async def test_a_redirect_inside_is_not_followed(home: Home, hub: ScriptedHub, place: str):
    hub.always = f"to {place}"
    refusal = await refused(home)

    assert re.search(
        "not of the public internet|no address of the web|canonical IPv4|cannot be read", refusal.message
    ), refusal.message
    assert "passwd" not in "".join(path.name for path in home.root.rglob("*"))


async def test_an_endpoint_that_a_manifest_names_is_not_inside_and_never_has_the_token(
    hub: ScriptedHub, tmp_path: Path
):
    """A leader must not make this machine ask what is beside it."""
    for endpoint in (hub.endpoint, hub.endpoint.replace("http:", "https:")):
        checkpoint = Checkpoint().from_endpoint(endpoint)
        source = HubSource(HubAccess("", TOKEN, read_timeout_s=0.2))
        home = Home(tmp_path / endpoint[:5], checkpoint, [source], LeaderOf(checkpoint))
        refusal = await refused(home)
        await source.close()

        assert "set HF_ENDPOINT on this machine" in refusal.message
    assert hub.ranges == [] and hub.tokens == []


async def test_the_operator_s_hub_is_asked_whatever_a_manifest_names(home: Home, hub: ScriptedHub):
    home.checkpoint.from_endpoint("https://hub.example")
    await home.fetch()

    assert hub.ranges and set(hub.tokens) == {f"Bearer {TOKEN}"}


async def test_a_download_goes_on_after_the_fellow_was_away(tmp_path: Path):
    checkpoint = Checkpoint(size_bytes=2**21)
    async with serving(ScriptedHub(checkpoint.files)) as hub:
        source = HubSource(HubAccess(hub.endpoint))
        home = Home(tmp_path, checkpoint, [source], LeaderOf(checkpoint))
        hub.faults = ["cut 9000000", "404"]
        first = await refused(home)
        half_bytes = hub.sent_bytes
        await home.fetch()
        await source.close()

    assert "answers 404" in first.message and half_bytes > 2**23
    assert hub.sent_bytes <= 1.05 * checkpoint.slice_bytes(0, 4)


async def test_a_slice_is_never_in_memory(tmp_path: Path):
    """44 MiB in eleven tensors; the peak is below half of one."""
    checkpoint = Checkpoint(size_bytes=4 * 2**20)
    folder, sizes = checkpoint.write_to(tmp_path / "hub"), checkpoint.slice_bytes(0, 4)
    checkpoint.tensors, checkpoint.files = {}, {}
    async with serving(ScriptedHub({}, folder)) as hub:
        source = HubSource(HubAccess(hub.endpoint))
        fetcher = Home(tmp_path / "cache", checkpoint, [source], LeaderOf(checkpoint)).fetcher()
        tracemalloc.start()
        try:
            fetched = await fetcher.fetch(checkpoint.ref, 0, 4, lambda done, total: None)
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        await source.close()

    assert fetched.fetched_bytes > sizes == 11 * 4 * 2**20
    assert peak_bytes < 2 * 2**20
