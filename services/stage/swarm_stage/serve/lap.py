"""Whether a probe came back from the ring it was sent round. Pure."""

from swarm_stage.engine.reply import Lap


def check_lap(lap: Lap, layer_start: int, layer_stop: int, layer_count: int, stage_count: int, vocabulary: int) -> str:
    """Empty when a lap is what the ring must give: every stage once, in order, every layer once, a real token."""
    others = lap.traces[1:]
    if [trace.stage_index for trace in lap.traces] != list(range(stage_count)):
        return f"the lap passed stages {[trace.stage_index for trace in lap.traces]}, not {stage_count} in order"
    covered = [(layer_start, layer_stop)] + [(trace.layer_start, trace.layer_stop) for trace in others]
    starts = [start for start, _ in covered] + [layer_count]
    if starts[0] != 0 or any(stop != starts[index + 1] for index, (_, stop) in enumerate(covered)):
        return f"the stages hold layers {covered} of {layer_count}: not each exactly once"
    if len(lap.tokens) != 1 or lap.tokens[0] >= vocabulary:
        return f"the last stage drew {list(lap.tokens)}, which is no token of {vocabulary}"
    return ""
