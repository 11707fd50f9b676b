"""How long a stage has been idle: what its fellow unloads it by."""

from silentswarm.core.v1 import stage_pb2
from silentswarm.stage.v1 import stage_pb2 as stage_rpc
from swarm_core.clock import ManualClock
from swarm_stage.ring.wiring import WireOrder
from swarm_stage.serve.runner import StageRunner

from tests.models import make_tiny_model, split_tensors

ALONE = stage_pb2.ROUTE_LOCAL


async def test_a_stage_is_not_idle_before_its_ring_stands_and_from_then_on_is(tmp_path):
    """The other stages may take longer to load than an idle model is kept."""
    folder, clock = make_tiny_model("llama", tmp_path, layers=2), ManualClock()
    spec = stage_pb2.StageSpec(
        layer_stop=2, stage_count=1, dtype="F32", context_tokens=64, in_flight_max=1, epoch=1, placement_id="p"
    )
    files = split_tensors(folder, folder / "tensors")
    runner = StageRunner(clock)
    try:
        clock.advance(1000)
        await runner.load(stage_rpc.LoadRequest(spec=spec, model_dir=str(folder), tensor_files=files), lambda *_: None)
        clock.advance(1000)
        loading = runner.status().idle_s
        await runner.wire(WireOrder(1, ALONE, ALONE, (), "", 5.0))
        wired = runner.status().idle_s
        clock.advance(7)

        assert (loading, wired, runner.status().idle_s) == (0, 0, 7)
    finally:
        await runner.close()
