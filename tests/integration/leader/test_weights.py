"""How weights are held, from the load request to the fellow and back into the ledger."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from silentswarm.core.v1 import capabilities_pb2, weights_pb2
from silentswarm.leader.v1 import serving_pb2
from swarm_core.errors import ModelNotReady, Reason
from swarm_core.manifest import Manifest
from swarm_core.servable_parts import TrainingSplit
from swarm_leader.domain.records import PlacementState

from tests.integration.leader.rig import MODEL, refusal_of, running_leader, until, write_servable
from tests.integration.leader.scripted_fellow import ScriptedFellow, declare, joined
from tests.unit.leader.model_facts import MEGABYTE, make_adapter, make_linear_manifest

NF4 = weights_pb2.Quantization(method="nf4")
ABLE: dict[str, Any] = {
    "serve_quantized": capabilities_pb2.ServeQuantized(methods=["nf4", "int8"]),
    "serve_codec": capabilities_pb2.ServeCodec(codecs=["int8", "int4"]),
    "serve_adapters": capabilities_pb2.ServeAdapters(adapters_max=4),
    "serve_devices": capabilities_pb2.ServeDevices(),
    "serve_storage": capabilities_pb2.ServeStorage(dtypes=["F16", "BF16"]),
}


def able(name: str, free_bytes: int = 4 * 10**9, **changes: Any) -> ScriptedFellow:
    """A fellow that holds weights in every way, but for the changes."""
    return ScriptedFellow(name, free_bytes, declare(**{**ABLE, **changes}))


def write_base(data_dir: Path, **changes: Any) -> Manifest:
    """A model of linear layers in place of the usual one."""
    base = replace(make_linear_manifest(layer_count=6, context_tokens_max=512), model_id=MODEL, **changes)
    write_servable(data_dir / "servable_models", base, MODEL)
    return base


def write_adapter(data_dir: Path, base: Manifest, model_id: str, **changes: Any) -> None:
    """An adapter of it in the catalog."""
    made = replace(make_adapter(model_id, base).manifest, **changes)
    write_servable(data_dir / "servable_models", made, model_id)


def write_stranger(data_dir: Path, base: Manifest) -> None:
    """Another model, and an adapter of that one."""
    other = replace(base, model_id="other")
    write_servable(data_dir / "servable_models", other, "other")
    write_adapter(data_dir, other, "stranger")


async def test_a_load_says_how_weights_are_held_and_keeps_what_became_of_it(tmp_path):
    attic, kitchen = able("attic", 3 * 10**9), able("kitchen", 2 * 10**9)
    kitchen.loads_as = {
        "weight_bytes": 777,
        "quantization": "nf4",
        "notes": ["two layers of 17 outputs are not packed"],
    }
    async with running_leader(tmp_path) as rig, joined(rig.address, attic, kitchen):
        write_base(tmp_path)
        ready = await rig.load_ready(num_stages=2, quantization=NF4, codec="int4")
        record = await rig.leader.store.ledger.latest(MODEL)

    specs = [fellow.signals[0].load.spec for fellow in (attic, kitchen)]
    assert [(spec.quantization, spec.codec_in, spec.codec_out) for spec in specs] == [
        ("nf4", "", "int4"),
        ("nf4", "int4", ""),
    ]
    assert (ready.quantization, ready.dtype) == ("nf4", "F32")
    assert [stage.codec_out for stage in ready.stages] == ["int4", ""]
    assert ready.stages[1].weight_bytes_measured == 777
    assert not ready.stages[0].HasField("weight_bytes_measured")
    assert ready.notes[0].startswith("int4 where training had none")
    assert list(ready.notes[1:]) == ["kitchen: two layers of 17 outputs are not packed"]
    assert (record.quantization, record.stages[1].quantization, record.stages[1].weight_bytes_measured) == (
        "nf4",
        "nf4",
        777,
    )


async def test_layers_go_on_the_cards_that_were_planned_and_old_fellows_choose_themselves(tmp_path):
    pc, old = able("pc"), able("old", serve_devices=None)
    pc.cards_free_bytes = [800 * MEGABYTE, 700 * MEGABYTE]
    old.cards_free_bytes = [1_500 * MEGABYTE]
    async with running_leader(tmp_path) as rig, joined(rig.address, pc, old):
        write_servable(
            rig.leader.config.models_root,
            make_linear_manifest(layer_count=6, outputs=8192, inputs=8192, dtype="F16", context_tokens_max=512),
        )
        planned = await rig.serving.PlanModel(
            serving_pb2.LoadModelRequest(model_id=MODEL, fellow_ids=["pc", "old"], num_stages=2)
        )
        ready = await rig.load_ready(fellow_ids=["pc", "old"], num_stages=2)

    runs = list(pc.signals[0].load.device_runs)
    assert [run.device_index for run in runs] == [1, 2]
    assert (runs[0].layer_start, runs[-1].layer_stop) == (0, ready.stages[0].layer_stop)
    assert list(old.signals[0].load.device_runs) == []
    assert [run.device_index for run in ready.stages[1].devices] == [1]
    assert list(planned.stages[0].devices) == runs
    assert planned.stages[0].free_bytes == 1_500 * MEGABYTE
    assert planned.predicted_tokens_per_s > 0


async def test_memory_on_each_card_is_promised_measured_and_given_back(tmp_path):
    pc = able("pc", serve=capabilities_pb2.Serve(loaded_models_max=2, model_types=["llama"]))
    pc.cards_free_bytes = [1_500 * MEGABYTE, 1_200 * MEGABYTE]
    pc.may_load.clear()
    async with running_leader(tmp_path, lease_s=20.0) as rig, joined(rig.address, pc):
        big = make_linear_manifest(layer_count=6, outputs=8192, inputs=8192, dtype="F16", context_tokens_max=512)
        write_servable(rig.leader.config.models_root, big)
        write_servable(rig.leader.config.models_root, make_linear_manifest(), "other")

        loading = await rig.load()
        needed = [run.weight_bytes + run.kv_bytes + run.working_bytes for run in loading.stages[0].devices]
        assert len(needed) == 2
        assert await _free_bytes_for_other(rig) == 2_700 * MEGABYTE - sum(needed)

        pc.loads_as = {"weight_bytes": 700 * MEGABYTE, "device_weight_bytes": [400 * MEGABYTE, 300 * MEGABYTE]}
        pc.may_load.set()
        await rig.until_state("READY")
        pc.cards_free_bytes = [600 * MEGABYTE, 500 * MEGABYTE]
        fellow = rig.leader.registry.find("pc")
        await until(lambda: fellow.hardware.devices[1].memory_free_bytes == 600 * MEGABYTE, "the figures arrive")
        pc.beats = False
        shown = await rig.get()
        assert [run.weight_bytes for run in shown.stages[0].devices] == [400 * MEGABYTE, 300 * MEGABYTE]

        await rig.serving.UnloadModel(serving_pb2.UnloadModelRequest(model_id=MODEL))

        assert await _free_bytes_for_other(rig) == (600 + 400 + 500 + 300) * MEGABYTE


async def _free_bytes_for_other(rig: Any) -> int:
    """What another model could count on, on both cards."""
    planned = await rig.serving.PlanModel(serving_pb2.LoadModelRequest(model_id="other"))
    return planned.stages[0].free_bytes


async def test_an_adapter_loaded_by_its_own_id_runs_over_the_weights_of_its_base(tmp_path):
    kitchen = able("kitchen")
    async with running_leader(tmp_path) as rig, joined(rig.address, kitchen):
        base = write_base(tmp_path)
        write_adapter(tmp_path, base, "poet")
        base_sha256, adapter_sha256 = await _hashes(rig, MODEL, "poet")

        await rig.load(model_id="poet")
        await until(lambda: "probe" in kitchen.kinds(), "the load is over")
        spec = kitchen.signals[0].load.spec
        assert (spec.model_id, spec.weights_model_id, spec.manifest_sha256) == ("poet", MODEL, base_sha256)
        assert [(one.model_id, one.manifest_sha256, one.use) for one in spec.adapters] == [
            ("poet", adapter_sha256, weights_pb2.ADAPTER_USE_MERGED)
        ]
        status = await rig.serving.GetModelStatus(serving_pb2.GetModelStatusRequest(model_id="poet"))
        assert status.model_id == "poet"

        kitchen.signals.clear()
        await rig.serving.UnloadModel(serving_pb2.UnloadModelRequest(model_id="poet"))
        await rig.load(model_id="poet", quantization=NF4)
        await until(lambda: "probe" in kitchen.kinds(), "the second load is over")
        spec = next(signal.load.spec for signal in kitchen.signals if signal.WhichOneof("kind") == "load")
        assert [one.use for one in spec.adapters] == [weights_pb2.ADAPTER_USE_ALWAYS]


async def _hashes(rig: Any, *model_ids: str) -> list[str]:
    rig.leader.catalog.refresh()
    return [rig.leader.catalog.manifest_sha256(model_id) for model_id in model_ids]


async def test_a_star_holds_every_adapter_of_the_model_and_of_no_other(tmp_path):
    kitchen = able("kitchen")
    async with running_leader(tmp_path) as rig, joined(rig.address, kitchen):
        base = write_base(tmp_path)
        write_adapter(tmp_path, base, "poet")
        write_adapter(tmp_path, base, "pirate")
        write_stranger(tmp_path, base)

        ready = await rig.load_ready(adapters=["*"])
        again = await rig.load(adapters=["poet"])

    assert list(ready.adapters) == ["pirate", "poet"]
    assert again.placement_id == ready.placement_id
    uses = [one.use for one in kitchen.signals[0].load.spec.adapters]
    assert uses == [weights_pb2.ADAPTER_USE_CHOSEN] * 2


async def test_adapters_that_cannot_be_held_are_refused_by_name(tmp_path):
    old = able("old", serve_adapters=None)
    async with running_leader(tmp_path) as rig, joined(rig.address, old):
        base = write_base(tmp_path)
        write_adapter(tmp_path, base, "poet")
        write_stranger(tmp_path, base)
        write_adapter(tmp_path, base, "wider", hidden_size=128)

        refusals = {
            "nothing": await refusal_of(rig.load(adapters=["nothing"])),
            MODEL: await refusal_of(rig.load(adapters=[MODEL])),
            "stranger": await refusal_of(rig.load(adapters=["stranger"])),
            "wider": await refusal_of(rig.load(adapters=["wider"])),
            "both": await refusal_of(rig.load(model_id="poet", adapters=["poet"])),
            "old": await refusal_of(rig.load(adapters=["poet"], num_stages=1)),
        }

    assert {name: refusal.why for name, refusal in refusals.items()} == {
        "nothing": Reason.MODEL_NOT_FOUND,
        MODEL: Reason.BAD_REQUEST,
        "stranger": Reason.BAD_REQUEST,
        "wider": Reason.SERVABLE_CORRUPT,
        "both": Reason.BAD_REQUEST,
        "old": Reason.CAPABILITY_MISSING,
    }
    assert "is a whole model, not an adapter of tiny" in refusals[MODEL].message
    assert "stranger is an adapter of other, not of tiny" in refusals["stranger"].message
    assert "fellow old lacks serve_adapters" in refusals["old"].message


async def test_a_load_that_asks_for_something_else_is_told_what_differs(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, able("kitchen")):
        base = write_base(tmp_path)
        write_adapter(tmp_path, base, "poet")
        ready = await rig.load_ready(quantization=NF4)

        again = await rig.load(quantization=NF4, codec="int8")  # one stage: no link to code
        refusal = await refusal_of(
            rig.load(quantization=weights_pb2.Quantization(bits=8), adapters=["poet"], num_stages=2)
        )

    assert again.placement_id == ready.placement_id
    assert refusal.why is Reason.CONFLICT
    assert refusal.message.startswith(
        "tiny is ready over 1 stage by auto with 256 tokens of context, quantization nf4, no"
    )
    assert "asked for: 2 stages; quantization int8; adapter poet;" in refusal.message


async def test_an_idle_model_wakes_as_it_was(tmp_path):
    kitchen = able("kitchen")
    async with running_leader(tmp_path) as rig, joined(rig.address, kitchen):
        base = write_base(tmp_path, split=TrainingSplit((0, 3), recorded=True, codecs=("int8",)))
        write_adapter(tmp_path, base, "poet")
        await rig.load_ready(quantization=NF4, adapters=["poet"])
        placement = rig.leader.board.get(MODEL)
        before = placement.record
        await rig.leader.ending.end(placement, PlacementState.IDLE, ModelNotReady("no request for 900 s"))

        await rig.leader.loading.wake(placement)
        await rig.until_state("READY")

        record = rig.leader.board.get(MODEL).record
        assert (record.placement_id, record.epoch) != (before.placement_id, before.epoch)
        ways = [(one.quantization, one.adapters, one.codec, one.storage_dtype) for one in (before, record)]
        assert ways[0] == ways[1] == ("nf4", record.adapters, "", "")
        assert [one.inner_codecs for one in record.stages] == [one.inner_codecs for one in before.stages]


async def test_too_few_fellows_that_quantise_serve_at_full_precision_and_the_note_says_so(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, able("old", serve_quantized=None)) as (old,):
        write_base(tmp_path)
        ready = await rig.load_ready(quantization=NF4)

    assert ready.quantization == "none"
    assert old.signals[0].load.spec.quantization == "none"
    assert list(ready.notes) == ["old lacks serve_quantized: held in full precision instead of nf4"]


async def test_a_preview_says_what_is_impossible_with_numbers(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, able("tiny-pc", 200 * MEGABYTE)):
        write_base(tmp_path)
        refusal = await refusal_of(
            rig.serving.PlanModel(serving_pb2.LoadModelRequest(model_id=MODEL, quantization=NF4))
        )

    assert refusal.why is Reason.NOT_ENOUGH_MEMORY
    assert "free: tiny-pc 0.20 GB" in refusal.message
    assert "Needed: tiny-pc 0.3" in refusal.message
    assert refusal.facts["quantization"] == "nf4"
