"""How a gateway bounds what it counts."""

from silentswarm.core.v1 import generation_pb2
from swarm_gateway.metrics import MODELS_MAX, OTHER_MODELS, GatewayMetrics


def models_of(metrics: GatewayMetrics) -> set[str]:
    """Every value of the model label."""
    return {
        sample.labels["model_name"]
        for family in metrics.registry.collect()
        for sample in family.samples
        if "model_name" in sample.labels
    }


def test_models_beyond_a_number_share_one_name():
    metrics = GatewayMetrics(lambda: 0.0)
    for number in range(MODELS_MAX + 5):
        meter = metrics.reply()
        meter.started(f"model-{number}", 7)
        meter.done(generation_pb2.FINISH_REASON_STOP)

    assert len(models_of(metrics)) == MODELS_MAX + 1
    assert OTHER_MODELS in models_of(metrics)


def test_a_reply_ends_once():
    metrics = GatewayMetrics(lambda: 0.0)
    meter = metrics.reply()
    meter.started("tiny", 7)
    meter.done(generation_pb2.FINISH_REASON_STOP)
    meter.gone()
    meter.failed()

    assert metrics.registry.get_sample_value("silentswarm_gateway_readers_gone_total") == 0
    assert metrics.registry.get_sample_value(
        "silentswarm_gateway_replies_total", {"model_name": "tiny", "finished_reason": "stop"}
    )


def test_times_are_those_between_texts_on_the_wire():
    now_s = [10.0]
    metrics = GatewayMetrics(lambda: now_s[0])
    meter = metrics.reply()
    meter.started("tiny", 7)
    for now_s[0] in (10.5, 10.75, 11.25):
        meter.said()

    label = {"model_name": "tiny"}
    assert metrics.registry.get_sample_value("silentswarm_gateway_time_to_first_token_seconds_sum", label) == 0.5
    assert metrics.registry.get_sample_value("silentswarm_gateway_inter_token_latency_seconds_sum", label) == 0.75
