"""What a LOAD brings to a stage: base, adapters, devices; and what is refused before a byte is fetched."""

import json
from pathlib import Path

import pytest
from silentswarm.core.v1 import reason_pb2, weights_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from swarm_fellow.domain.capabilities import ADAPTERS_MAX

from tests.integration.fellow.running_fellow import running_fellow
from tests.integration.fellow.scripted_leader import ScriptedLeader, TinyAdapter, TinyModel

ONE, ADAPTER = TinyModel(), TinyAdapter()
MERGED = weights_pb2.AdapterRef(
    model_id=ADAPTER.model_id, manifest_sha256=ADAPTER.sha256, use=weights_pb2.ADAPTER_USE_MERGED
)


def told(folder: Path, label: str) -> dict:
    """What the stage was asked for at its load."""
    lines = (folder / "state" / "logs" / f"{label}-stage-0.log").read_text().splitlines()
    return json.loads(next(line for line in lines if line.startswith("{")))


async def load(folder: Path, *models: TinyModel, **signal) -> tuple[ScriptedLeader, link_pb2.SignalResult]:
    leader = ScriptedLeader(*models)
    await leader.start()
    choices = {"SWARM_SERVE_LORA": "lean16", "SWARM_SERVE_4BIT_ROWS": "3", "SWARM_SERVE_4BIT_FLOAT32": "off"}
    async with running_fellow(leader.address, folder, "tells-request", **choices):
        fellow = await leader.connection()
        return leader, await fellow.ask(load=link_pb2.LoadSignal(**signal))


async def test_an_adapter_comes_with_the_base_it_is_of_and_only_its_layers(tmp_path: Path):
    """Placed under the adapter's own id."""
    spec = ONE.spec("p1", model_id=ADAPTER.model_id, weights_model_id=ONE.model_id, adapters=[MERGED])
    leader, result = await load(tmp_path, ONE, ADAPTER, spec=spec)
    request = told(tmp_path, "tiny--adapter")

    both_bytes = ONE.slice_bytes(0, 2) + ADAPTER.slice_bytes(0, 2)
    assert result.load.fetched_bytes == leader.fetched_bytes == both_bytes
    (files,) = request["adapters"]
    assert files["modelId"] == ADAPTER.model_id and Path(files["modelDir"], "adapter_config.json").is_file()
    assert sorted(files["tensorFiles"]) == [
        f"model.layers.{layer}.self_attn.q_proj.lora_{half}.weight" for layer in (0, 1) for half in "AB"
    ]
    assert sorted(request["tensorFiles"])[0] == "model.embed_tokens.weight"
    assert (request["fourbitRows"], request["fourbitFloat32"]) == ("3", "off")
    assert request["lora"] == "lean16" and request["spec"]["adapters"][0]["use"] == "ADAPTER_USE_MERGED"
    assert (result.load.quantization, list(result.load.notes)) == ("nf4", ["as asked"])
    assert list(result.load.device_weight_bytes) == [10, 20]


async def test_progress_counts_base_and_adapters_together(tmp_path: Path):
    leader = ScriptedLeader(ONE, ADAPTER)
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        fellow = await leader.connection()
        await fellow.load(ONE.spec("p1", adapters=[MERGED]))

    sums = {progress.total for progress in fellow.progress if progress.step == "fetch"}
    assert sums == {ONE.slice_bytes(0, 2) + ADAPTER.slice_bytes(0, 2)}


async def test_layers_go_on_devices_by_this_fellow_s_own_names(tmp_path: Path):
    runs = [weights_pb2.DeviceRun(device_index=0, layer_start=0, layer_stop=1)]
    runs.append(weights_pb2.DeviceRun(device_index=0, layer_start=1, layer_stop=2))
    await load(tmp_path, ONE, spec=ONE.spec("p1"), device_runs=runs)

    request = told(tmp_path, "tiny--one")
    assert request["device"] == "cpu"
    assert request["deviceLayers"] == [
        {"device": "cpu", "layerStop": 1},
        {"device": "cpu", "layerStart": 1, "layerStop": 2},
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_id": ADAPTER.model_id, "manifest_sha256": ADAPTER.sha256}, "has no weights to build a stage of"),
        ({"adapters": [weights_pb2.AdapterRef(model_id="tiny/one", manifest_sha256=ONE.sha256)]}, "is a whole model"),
        ({"adapters": [MERGED] * (ADAPTERS_MAX + 1)}, f"at most {ADAPTERS_MAX}"),
    ],
)
async def test_models_in_each_other_s_place_are_refused(tmp_path: Path, changes: dict, words: str):
    leader, result = await load(tmp_path, ONE, ADAPTER, spec=ONE.spec("p1", **changes))

    assert result.failure.reason == reason_pb2.REASON_BAD_REQUEST and words in result.failure.message
    assert leader.fetched_bytes == 0


async def test_devices_that_are_not_here_are_refused_before_a_byte_is_fetched(tmp_path: Path):
    runs = [weights_pb2.DeviceRun(device_index=5, layer_start=0, layer_stop=2)]
    leader, result = await load(tmp_path, ONE, spec=ONE.spec("p1"), device_runs=runs)

    assert result.failure.reason == reason_pb2.REASON_BAD_REQUEST
    assert "planned for device 5; there are 1 (cpu)" in result.failure.message
    assert leader.fetched_bytes == 0
