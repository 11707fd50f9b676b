"""Bytes from the leader: only the slice, resumed after breaks, verified before they get a name."""

from pathlib import Path

from silentswarm.core.v1 import reason_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2

from tests.integration.fellow.running_fellow import running_fellow
from tests.integration.fellow.scripted_leader import CHUNK_BYTES, ScriptedLeader, TinyModel, eventually, hash_of


async def load_once(leader: ScriptedLeader, folder: Path, **changes) -> link_pb2.SignalResult:
    """A fellow that comes, loads one stage and goes."""
    number = len(leader.connections) + 1
    async with running_fellow(leader.address, folder):
        fellow = await leader.connection(number)
        model = next(iter(leader.models.values()))
        return await fellow.ask(load=link_pb2.LoadSignal(spec=model.spec("p1", **changes)))


def bytes_under(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def files_of(folder: Path) -> set[str]:
    """Names of the tensors in a fellow's cache."""
    return {file.name for file in (folder / "models" / "tensors").iterdir()}


def cached(folder: Path, model: TinyModel, tensor: str) -> Path:
    """A tensor's file in a fellow's cache."""
    (path,) = (folder / "models" / "tensors").glob(f"{hash_of(model.tensors[tensor])}-*")
    return path


def flip(path: Path, place: int) -> None:
    """Change one bit of one byte."""
    raw = bytearray(path.read_bytes())
    raw[place] ^= 1
    path.write_bytes(raw)


async def test_only_the_slice_is_fetched_and_the_second_load_fetches_nothing(tmp_path: Path):
    leader = ScriptedLeader(TinyModel())
    await leader.start()
    first = await load_once(leader, tmp_path)
    crossed_bytes = leader.fetched_bytes
    second = await load_once(leader, tmp_path)

    slice_bytes = leader.models["tiny/one"].slice_bytes(0, 2)
    assert slice_bytes <= first.load.fetched_bytes == crossed_bytes <= 1.05 * slice_bytes
    assert second.load.fetched_bytes == 0 and leader.fetched_bytes == crossed_bytes


async def test_a_cut_stream_goes_on_where_it_broke(tmp_path: Path):
    leader = ScriptedLeader(TinyModel())
    leader.cuts_after_bytes = [6000, 9000, 0, 30_000]
    await leader.start()
    result = await load_once(leader, tmp_path)

    assert not leader.cuts_after_bytes
    assert result.load.fetched_bytes <= 1.05 * leader.models["tiny/one"].slice_bytes(0, 2)


async def test_a_download_goes_on_after_the_fellow_was_away(tmp_path: Path):
    leader = ScriptedLeader(TinyModel())
    await leader.start()
    leader.hold_after_bytes = 30_000
    async with running_fellow(leader.address, tmp_path):
        fellow = await leader.connection()
        fellow.send(load=link_pb2.LoadSignal(spec=leader.models["tiny/one"].spec("p1")))
        await eventually(lambda: bytes_under(tmp_path / "models") > 30_000, "half of it lies on disk")
    await eventually(lambda: leader.fetches_running == 0, "the leader noticed that its reader is gone")
    leader.go_on.set()
    result = await load_once(leader, tmp_path)

    slice_bytes = leader.models["tiny/one"].slice_bytes(0, 2)
    assert leader.fetched_bytes <= slice_bytes + CHUNK_BYTES  # one was on its way when the fellow went
    assert result.load.fetched_bytes <= slice_bytes - 30_000 + 4096


async def test_a_wrong_byte_is_fetched_again_and_never_loaded(tmp_path: Path):
    leader = ScriptedLeader(TinyModel())
    leader.corrupt = {"model.layers.1.mlp.weight": 1, "tokenizer/tokenizer.json": 1}
    await leader.start()
    result = await load_once(leader, tmp_path)

    model = leader.models["tiny/one"]
    refetched_bytes = len(model.tensors["model.layers.1.mlp.weight"]) + len(model.files["tokenizer/tokenizer.json"])
    assert result.load.fetched_bytes == model.slice_bytes(0, 2) + refetched_bytes
    for file in (tmp_path / "models" / "tensors").glob("*.safetensors"):
        raw = file.read_bytes()
        assert hash_of(raw[8 + int.from_bytes(raw[:8], "little") :]) == file.name[:64]


async def test_a_cached_tensor_that_changed_since_it_came_is_fetched_again_and_never_loaded(tmp_path: Path):
    """One in its bytes, as a disk does that fails, one in its header; found by a fellow that started since."""
    leader = ScriptedLeader(TinyModel())
    await leader.start()
    await load_once(leader, tmp_path)
    model = leader.models["tiny/one"]
    spoiled = {"model.layers.0.mlp.weight": -1, "model.layers.1.mlp.weight": 9}
    for name, place in spoiled.items():
        flip(cached(tmp_path, model, name), place)
    result = await load_once(leader, tmp_path)

    assert result.load.fetched_bytes == sum(len(model.tensors[name]) for name in spoiled)
    for name in spoiled:
        raw = cached(tmp_path, model, name).read_bytes()
        assert raw[8 + int.from_bytes(raw[:8], "little") :] == model.tensors[name]


async def test_a_fellow_reads_a_cached_tensor_again_when_somebody_wrote_to_it(tmp_path: Path):
    leader = ScriptedLeader(TinyModel())
    await leader.start()
    model, name = leader.models["tiny/one"], "model.layers.1.mlp.weight"
    async with running_fellow(leader.address, tmp_path):
        fellow = await leader.connection()
        await fellow.load(model.spec("p1"))
        flip(cached(tmp_path, model, name), -1)
        await fellow.ask(unload=link_pb2.UnloadSignal(placement_id="p1"))
        again = await fellow.load(model.spec("p2"))

    assert again.fetched_bytes == len(model.tensors[name])


async def test_bytes_that_stay_wrong_fail_the_load_and_leave_nothing(tmp_path: Path):
    leader = ScriptedLeader(TinyModel())
    leader.corrupt = {"model.layers.1.mlp.weight": 9}
    await leader.start()
    result = await load_once(leader, tmp_path)

    wrong = hash_of(leader.models["tiny/one"].tensors["model.layers.1.mlp.weight"])
    assert result.failure.reason == reason_pb2.REASON_HASH_MISMATCH
    assert "model.layers.1.mlp.weight" in result.failure.message
    assert list((tmp_path / "models" / "tensors").glob(f"{wrong}*")) == []


async def test_another_manifest_than_planned_is_refused(tmp_path: Path):
    leader = ScriptedLeader(TinyModel())
    await leader.start()
    result = await load_once(leader, tmp_path, layer_stop=3)
    planned = leader.models["tiny/one"].spec("p1")
    leader.models["tiny/one"].files["config.json"] = b"{}"
    async with running_fellow(leader.address, tmp_path / "other"):
        fellow = await leader.connection(2)
        changed = await fellow.ask(load=link_pb2.LoadSignal(spec=planned))

    assert result.load.fetched_bytes > 0
    assert changed.failure.reason == reason_pb2.REASON_HASH_MISMATCH


async def test_an_unknown_model_and_impossible_layers_are_refused_with_their_reasons(tmp_path: Path):
    leader = ScriptedLeader(TinyModel())
    await leader.start()
    unknown = await load_once(leader, tmp_path, model_id="tiny/none", manifest_sha256="0" * 64)
    impossible = await load_once(leader, tmp_path, layer_start=3, layer_stop=9)

    assert unknown.failure.reason == reason_pb2.REASON_MODEL_NOT_FOUND
    assert unknown.failure.metadata["available"] == "tiny/one"
    assert impossible.failure.reason == reason_pb2.REASON_BAD_REQUEST


async def test_a_held_model_keeps_its_files_and_an_unloaded_one_makes_room(tmp_path: Path):
    one, two = TinyModel("tiny/one"), TinyModel("tiny/two")
    leader = ScriptedLeader(one, two)
    await leader.start()
    limits = {"SWARM_FELLOW_CACHE_MAX_GB": "0.0001", "SWARM_MAX_LOADED_MODELS": "2"}
    async with running_fellow(leader.address, tmp_path, **limits):
        fellow = await leader.connection()
        await fellow.load(one.spec("p1"))
        held = files_of(tmp_path)
        await fellow.load(two.spec("p2"))
        held_by_two = files_of(tmp_path)
        await fellow.ask(unload=link_pb2.UnloadSignal(placement_id="p1"))
        await fellow.load(two.spec("p3", layer_start=2, layer_stop=4))
        after_unload = files_of(tmp_path)
        again = await fellow.load(one.spec("p4"))

    assert held < held_by_two
    assert not (held - held_by_two) and held - after_unload
    assert again.fetched_bytes > 0


async def test_models_with_equal_tensors_share_their_files(tmp_path: Path):
    """Every norm of both models has the same bytes."""
    one, two = TinyModel("tiny/one"), TinyModel("tiny/two")
    leader = ScriptedLeader(one, two)
    await leader.start()
    async with running_fellow(leader.address, tmp_path, SWARM_MAX_LOADED_MODELS="2"):
        fellow = await leader.connection()
        first = await fellow.load(one.spec("p1"))
        second = await fellow.load(two.spec("p2"))

    shared = {one.tensors["model.layers.0.norm.weight"], *one.files.values()} & {*two.tensors.values()}
    shared_bytes = sum(map(len, shared))
    assert shared_bytes > 0 and first.fetched_bytes == one.slice_bytes(0, 2)
    assert second.fetched_bytes == two.slice_bytes(0, 2) - shared_bytes


async def test_two_loads_at_once_share_one_download(tmp_path: Path):
    leader = ScriptedLeader(TinyModel())
    await leader.start()
    model = leader.models["tiny/one"]
    async with running_fellow(leader.address, tmp_path, SWARM_MAX_LOADED_MODELS="2"):
        fellow = await leader.connection()
        leader.hold_after_bytes = 0
        ids = [fellow.send(load=link_pb2.LoadSignal(spec=model.spec(placement))) for placement in ("p1", "p2")]
        await eventually(lambda: list((tmp_path / "models").rglob("*.part")), "one of them has claimed its pieces")
        leader.go_on.set()
        results = [await fellow.result(signal_id) for signal_id in ids]

    assert all(result.WhichOneof("outcome") == "load" for result in results)
    assert leader.fetched_bytes == model.slice_bytes(0, 2)


async def test_a_new_cut_of_a_model_fetches_only_the_layers_that_moved(tmp_path: Path):
    """From two stages to three: the second fellow holds layers 2 and 3 and now takes 1 and 2."""
    leader = ScriptedLeader(TinyModel())
    await leader.start()
    model = leader.models["tiny/one"]
    async with running_fellow(leader.address, tmp_path):
        fellow = await leader.connection()
        await fellow.load(model.spec("p1", stage_index=1, layer_start=2, layer_stop=4))
        await fellow.ask(unload=link_pb2.UnloadSignal(placement_id="p1"))
        cut = dict(stage_index=1, stage_count=3, layer_start=1, layer_stop=3)
        moved = await fellow.load(model.spec("p2", **cut))

    assert moved.fetched_bytes == len(model.tensors["model.layers.1.mlp.weight"])  # its norm is equal to layer 2's


async def test_two_fellows_with_one_cache_share_the_downloads(tmp_path: Path):
    leader = ScriptedLeader(TinyModel())
    await leader.start()
    model, cache = leader.models["tiny/one"], str(tmp_path / "models")
    async with (
        running_fellow(leader.address, tmp_path / "a", SWARM_FELLOW_MODEL_CACHE=cache),
        running_fellow(leader.address, tmp_path / "b", SWARM_FELLOW_MODEL_CACHE=cache),
    ):
        first, second = await leader.connection(1), await leader.connection(2)
        leader.hold_after_bytes = 0
        ids = [f.send(load=link_pb2.LoadSignal(spec=model.spec("p1"))) for f in (first, second)]
        await eventually(lambda: list((tmp_path / "models").rglob("*.part")), "one of them has claimed its pieces")
        leader.go_on.set()
        results = [await fellow.result(signal_id) for fellow, signal_id in zip((first, second), ids, strict=True)]

    assert all(result.WhichOneof("outcome") == "load" for result in results)
    assert leader.fetched_bytes == model.slice_bytes(0, 2)
    assert sum(result.load.fetched_bytes for result in results) == leader.fetched_bytes
    assert not list((tmp_path / "models").rglob("*.part"))
