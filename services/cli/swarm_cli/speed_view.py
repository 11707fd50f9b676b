"""How a model's speed looks on a terminal: as predicted, and as measured since. Pure: messages in, lines out."""

from silentswarm.leader.v1 import serving_pb2

UNKNOWN = "unknown: not every device has measured how fast it reads its memory"
PROMPT_TOKENS = 512  # of the prompt whose first token a leader predicts


def predicted_text(plan: serving_pb2.ModelStatus) -> str:
    """Tokens per second of one reply, with the part of each stage and of the links; unknown says so."""
    if not plan.HasField("predicted_tokens_per_s"):
        return UNKNOWN
    each = [
        f"stage {stage.stage_index} {stage.predicted_ms:.1f} ms"
        for stage in plan.stages
        if stage.HasField("predicted_ms")
    ]
    links = [stage.predicted_link_ms for stage in plan.stages if stage.HasField("predicted_link_ms")]
    each += [f"links {sum(links):.1f} ms"] if links else []
    text = f"{plan.predicted_tokens_per_s:.1f} tokens/s of one reply" + (f" ({', '.join(each)})" if each else "")
    if plan.HasField("predicted_first_token_ms"):
        text += f", first token of {PROMPT_TOKENS} after {plan.predicted_first_token_ms / 1000:.1f} s"
    return text


def speed_lines(status: serving_pb2.ModelStatus) -> list[str]:
    """Of a model that is served: predicted against measured, and where a token's time went; nothing without either."""
    predicted, measured = status.HasField("predicted_tokens_per_s"), status.HasField("measured_tokens_per_s")
    if not predicted and not measured:
        return []
    words = f"predicted {status.predicted_tokens_per_s:.1f} tokens/s" if predicted else "predicted unknown"
    words += f", measured {status.measured_tokens_per_s:.1f}" if measured else ", not measured yet"
    lines = [f"  speed of one reply: {words}"]
    if measured:
        links = _pair(
            sum(stage.predicted_link_ms for stage in status.stages)
            if all(stage.HasField("predicted_link_ms") for stage in status.stages)
            else None,
            status.measured_link_ms,
        )
        each = [f"stage {stage.stage_index} {_stage_pair(stage)}" for stage in status.stages]
        each += [f"links {links}"] if len(status.stages) > 1 else []
        lines.append(f"  ms of a token, predicted/measured: {', '.join(each)}")
    return lines


def _stage_pair(stage: serving_pb2.StagePlacement) -> str:
    return _pair(stage.predicted_ms if stage.HasField("predicted_ms") else None, stage.measured_ms)


def _pair(predicted: float | None, measured: float) -> str:
    return f"{'?' if predicted is None else f'{predicted:.1f}'}/{measured:.1f}"
