"""A plan as people read it: on narrow and wide terminals, and in a pipe."""

import io

import pytest
from rich.console import Console, RenderableType
from silentswarm.core.v1 import stage_pb2, weights_pb2
from silentswarm.leader.v1 import serving_pb2
from swarm_cli.plan_view import plan_view
from swarm_cli.serving_view import served_view
from swarm_cli.terminal import console_on

GIGABYTE = 2**30


def make_plan(**changes: object) -> serving_pb2.ModelStatus:
    """Two stages; the second on two cards, and slower."""
    first = serving_pb2.StagePlacement(
        stage_index=0,
        fellow_name="fellow-1",
        layer_start=0,
        layer_stop=20,
        weight_bytes=3 * GIGABYTE,
        kv_bytes=GIGABYTE,
        working_bytes=400 * 2**20,
        free_bytes=8 * GIGABYTE,
        route=stage_pb2.ROUTE_DIRECT,
        codec_out="int8",
        predicted_ms=8.04,
    )
    runs = [
        weights_pb2.DeviceRun(
            device_index=card,
            layer_start=20 + 6 * card,
            layer_stop=26 + 6 * card,
            weight_bytes=GIGABYTE,
            kv_bytes=GIGABYTE // 4,
            working_bytes=300 * 2**20,
            free_bytes=None if card else 2 * GIGABYTE,
        )
        for card in range(2)
    ]
    second = serving_pb2.StagePlacement(
        stage_index=1, fellow_name="fellow-2", layer_start=20, layer_stop=32, devices=runs, predicted_ms=16.2
    )
    facts: dict[str, object] = {
        "model_id": "org/large",
        "state": serving_pb2.PLACEMENT_STATE_PLANNED,
        "stages": [first, second],
        "context_tokens": 4096,
        "in_flight_max": 8,
        "quantization": "nf4",
        "dtype": "F16",
        "adapters": ["ann/pirate"],
        "predicted_tokens_per_s": 41.24,
        "notes": ["int4-fast is not there on fellow-2: nf4 instead"],
    }
    return serving_pb2.ModelStatus(**{**facts, **changes})


def draw(view: RenderableType, width: int) -> list[str]:
    """The lines on a terminal so wide."""
    stream = io.StringIO()
    Console(file=stream, width=width, highlight=False, color_system=None).print(view)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize("width", [80, 120])
def test_a_plan_has_a_line_for_each_device_on_terminals_of_80_columns_and_more(width: int):
    lines = draw(plan_view(make_plan()), width)

    rows = [" ".join(line.split()) for line in lines]
    header = rows.index("STAGE FELLOW LAYERS DEVICE WEIGHTS KV WORKING FREE")
    assert rows[header + 1 : header + 4] == [
        "0 fellow-1 0-19 - 3.0 GiB 1.0 GiB 400.0 MiB 8.0 GiB",
        "1 fellow-2 20-25 0 1.0 GiB 256.0 MiB 300.0 MiB 2.0 GiB",
        "1 fellow-2 26-31 1 1.0 GiB 256.0 MiB 300.0 MiB unknown",
    ]
    assert max(map(len, lines)) <= width


def test_a_plan_in_a_pipe_is_one_line_for_each_fact_and_no_escape_codes():
    stream = io.StringIO()

    console_on(stream).print(plan_view(make_plan()))

    lines = [line.rstrip() for line in stream.getvalue().splitlines()]
    assert "\x1b" not in stream.getvalue()
    assert lines[0] == ("org/large  planned  2 stages  nf4, computed in F16  context 4096 tokens  8 replies at once")
    assert lines[5:] == [
        "  links: 0 to 1 direct, int8; 1 to 0 -",
        "  adapters: ann/pirate",
        "  predicted: 41.2 tokens/s of one reply (stage 0 8.0 ms, stage 1 16.2 ms)",
        "  note: int4-fast is not there on fellow-2: nf4 instead",
    ]


def test_links_and_the_first_token_are_part_of_a_prediction():
    plan = make_plan(predicted_first_token_ms=2345.0)
    for stage in plan.stages:
        stage.predicted_link_ms = 20.5

    assert (
        "  predicted: 41.2 tokens/s of one reply (stage 0 8.0 ms, stage 1 16.2 ms, links 41.0 ms), first token of 512 "
        "after 2.3 s"
    ) in draw(plan_view(plan), 200)


def test_a_served_model_shows_what_was_predicted_beside_what_was_measured():
    served = make_plan(state=serving_pb2.PLACEMENT_STATE_READY, measured_tokens_per_s=36.9, measured_link_ms=2.4)
    for stage, measured_ms in zip(served.stages, (9.0, 15.25), strict=True):
        stage.measured_ms, stage.predicted_link_ms = measured_ms, 1.03

    lines = draw(served_view(served), 200)

    assert "  speed of one reply: predicted 41.2 tokens/s, measured 36.9" in lines
    assert "  ms of a token, predicted/measured: stage 0 8.0/9.0, stage 1 16.2/15.2, links 2.1/2.4" in lines


def test_before_a_reply_a_served_model_shows_its_prediction_alone_and_one_without_speeds_nothing():
    predicted = make_plan(state=serving_pb2.PLACEMENT_STATE_READY)
    unknown = make_plan(state=serving_pb2.PLACEMENT_STATE_READY)
    unknown.ClearField("predicted_tokens_per_s")

    assert "  speed of one reply: predicted 41.2 tokens/s, not measured yet" in draw(served_view(predicted), 200)
    assert not [line for line in draw(served_view(unknown), 200) if "speed" in line]


def test_a_served_model_says_which_stages_are_held_a_second_time():
    covers = [
        serving_pb2.CoverPlacement(stage_index=0, fellow_name="shed", kind="hot"),
        serving_pb2.CoverPlacement(stage_index=1, fellow_name="[bold]yard", kind="warm"),
    ]
    lines = draw(served_view(make_plan(covers=covers)), 120)

    assert "  covers: stage 0 hot on shed, stage 1 warm on [bold]yard" in lines
    assert not any("covers" in line for line in draw(served_view(make_plan()), 120))


def test_full_precision_is_said_in_words():
    assert "not quantized, computed in F16" in draw(plan_view(make_plan(quantization="none")), 200)[0]


def test_a_speed_that_is_unknown_is_said_to_be_and_not_zero():
    plan = make_plan()
    plan.ClearField("predicted_tokens_per_s")

    assert "  predicted: unknown: not every device has measured how fast it reads its memory" in draw(
        plan_view(plan), 200
    )


@pytest.mark.parametrize("view", [plan_view, served_view])
def test_what_others_wrote_can_neither_steer_the_terminal_nor_draw_on_it(view):
    hostile = make_plan(notes=["[bold]x\x1b]52;c;b3duZWQ=\x07\n[red]y"], model_id="[link=evil]m\x9b2J")

    drawn = "\n".join(draw(view(hostile), 200))

    assert "note: [bold]x]52;c;b3duZWQ= [red]y" in drawn
    assert "[link=evil]m2J" in drawn
    assert not [each for each in drawn if each in "\x1b\x07\x9b"]


def test_a_served_model_shows_what_its_weights_measured_and_how_its_links_are_coded():
    status = make_plan(state=serving_pb2.PLACEMENT_STATE_READY)
    status.stages[0].weight_bytes_measured = 2 * GIGABYTE

    rows = [" ".join(line.split()) for line in draw(served_view(status), 200)]

    assert "0 fellow-1 0-19 direct int8 2.0 GiB - -" in rows
    assert "adapters: ann/pirate" in rows
