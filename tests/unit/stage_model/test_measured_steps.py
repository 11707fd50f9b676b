"""Step costs of a loaded slice, in the log when asked for."""

import structlog
from silentswarm.core.v1 import stage_pb2
from swarm_stage.serve.measured_steps import log_step_costs

from tests.models import make_tiny_model
from tests.unit.stage_model.slices import build_slices


def test_every_batch_and_piece_size_is_measured_on_any_stage(tmp_path):
    for stage in (0, 1):
        part = build_slices(make_tiny_model("llama", tmp_path / str(stage)), 2)[stage]
        with structlog.testing.capture_logs() as logs:
            log_step_costs(part, part.layers, stage_pb2.StageSpec(stage_index=stage, context_tokens=4096))

        assert [line["sessions"] for line in logs if line["event"] == "step cost"] == [1, 2, 4, 8]
        assert [line["tokens"] for line in logs if line["event"] == "piece cost"] == [16, 64, 256]
        assert all(line.get("step_ms", 1) > 0 and line.get("piece_ms", 1) > 0 for line in logs)


def test_sizes_beyond_the_cap_and_the_context_are_left_out(tmp_path):
    part = build_slices(make_tiny_model("llama", tmp_path), 1)[0]
    with structlog.testing.capture_logs() as logs:
        log_step_costs(part, part.layers, stage_pb2.StageSpec(batch_max=2, context_tokens=100))

    assert [line["sessions"] for line in logs if line["event"] == "step cost"] == [1, 2]
    assert [line["tokens"] for line in logs if line["event"] == "piece cost"] == [16, 64]
