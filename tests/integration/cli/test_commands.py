"""Every command of `swarm`, as a user runs it: what is printed where, and the exit code."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from silentswarm.core.v1 import stage_pb2, weights_pb2
from silentswarm.leader.v1 import serving_pb2

from tests.integration.cli.conftest import Ended
from tests.integration.cli.scripted_leader import ScriptedLeader, stages

Swarm = Callable[..., Ended]
LOADING = serving_pb2.ModelStatus(
    model_id="tiny", state=serving_pb2.PLACEMENT_STATE_LOADING, stages=stages("loading", "weights", 5, 10)
)
READY = serving_pb2.ModelStatus(
    model_id="tiny", state=serving_pb2.PLACEMENT_STATE_READY, stages=stages("loaded"), probe_lap_ms=12.5
)
FAILED = serving_pb2.ModelStatus(
    model_id="tiny", state=serving_pb2.PLACEMENT_STATE_FAILED, reason="stage 1 on fellow-2: out of memory"
)


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_models_prints_one_line_per_model_without_escape_codes(swarm: Swarm):
    ended = swarm("models")

    assert ended.code == 0
    assert "\x1b" not in ended.out
    lines = ended.out.splitlines()
    assert lines[0].split() == ["MODEL", "STATE", "TYPE", "LAYERS", "PARAMETERS", "WEIGHTS"]
    assert "134.5M" in lines[1]
    assert "broken: no config.json" in lines[2]


@pytest.mark.parametrize(
    "arguments",
    [
        ("models",),
        ("models", "show", "tiny"),
        ("models", "performance", "tiny"),
        ("status",),
        ("fellows",),
        ("fellows", "ping", "fellow-1"),
        ("model-load", "tiny", "--plan"),
    ],
)
def test_json_prints_one_document_with_the_names_of_the_protos(swarm: Swarm, arguments: tuple[str, ...]):
    ended = swarm(*arguments, "--json")

    assert ended.code == 0
    assert ended.err == ""
    document = json.loads(ended.out)
    assert not any(character.isupper() for character in "".join(document))


@pytest.mark.parametrize("arguments", [("models",), ("status",), ("infer", "tiny", "Where?"), ("model-unload", "tiny")])
def test_json_may_stand_before_the_command(swarm: Swarm, arguments: tuple[str, ...]):
    assert json.loads(swarm("--json", *arguments).out)


def test_models_show_prints_brackets_as_they_are(swarm: Swarm):
    assert "/models/[tiny].gguf" in swarm("models", "show", "tiny").out


def test_models_show_says_how_fast_a_served_model_was_said_to_be_and_is(swarm: Swarm):
    lines = swarm("models", "show", "tiny").out.splitlines()

    assert "speed of one reply: predicted 18.2 tokens/s, measured 16.9" in lines
    assert "ms of a token, predicted/measured: stage 0 50.0/54.2" in lines
    assert "speed" not in swarm("models", "show", "org/trained").out


def test_an_unknown_model_is_4_and_names_what_exists(swarm: Swarm):
    ended = swarm("models", "show", "nope")

    assert ended.code == 4
    assert ended.out == ""
    assert "there is: tiny" in ended.err
    assert "model-import" in ended.err


def test_no_leader_is_3_and_says_how_to_start_one(swarm: Swarm):
    address = f"127.0.0.1:{free_port()}"

    ended = swarm("status", SWARM_LEADER=address)

    assert ended.code == 3
    assert f"no leader answers at {address}: start one with `swarm up` or `swarm-leader`" in ended.err


@pytest.mark.parametrize("before", [True, False])
def test_the_option_wins_over_the_environment_wherever_it_stands(swarm: Swarm, leader: ScriptedLeader, before: bool):
    option = ("--leader", leader.address)
    arguments = (*option, "models") if before else ("models", *option)

    assert swarm(*arguments, SWARM_LEADER=f"127.0.0.1:{free_port()}").code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("modles",), "No such command"),
        (("model-load",), "Missing argument"),
        (("model-load", "tiny", "--transport", "pigeon"), "auto"),
        (("model-load", "tiny", "--quantization", "int3"), "int4-fast"),
        (("model-load", "tiny", "--codec", "zip"), "int8"),
        (("up", "--quantization", "tiny"), "nf4"),
        (("models", "--leader", "nowhere"), "HOST:PORT"),
        (("infer", "tiny", ""), "the prompt is empty"),
        (("up", "--no-model", "--once", "hi"), "--no-model"),
        (("up", "--once", ""), "--once has nothing to ask"),
        (("up", "--once", "hi", "--chat"), "give one of them"),
        (("up", "--http-port", "7777", "--grpc-port", "7777"), "both 7777"),
        (("up", "--data-dir", "/proc/x"), "the data folder /proc/x cannot be made or written: No such file"),
        (("up", "--data-dir", __file__), "choose another with --data-dir"),
    ],
)
def test_wrong_usage_is_2_and_never_a_traceback(swarm: Swarm, arguments: tuple[str, ...], words: str):
    ended = swarm(*arguments)

    assert ended.code == 2
    assert words in ended.err
    assert "Traceback" not in ended.err


def test_import_sends_an_absolute_path_and_shows_its_steps(swarm: Swarm, leader: ScriptedLeader, tmp_path: Path):
    source = tmp_path / "tiny.gguf"
    source.write_bytes(b"GGUF")

    ended = swarm("model-import", str(source), "--id", "tiny")

    assert ended.code == 0
    assert leader.imports[0].source == str(source)
    assert leader.imports[0].model_id == "tiny"
    assert "import convert" in ended.err
    assert ended.err.splitlines()[-1] == "imported tiny; next: swarm model-load tiny --wait"


def test_load_passes_every_choice_on(swarm: Swarm, leader: ScriptedLeader):
    choices = ["--num-stages", "2", "--fellow", "a", "--fellow", "b", "--transport", "tunnel", "--context", "512"]
    choices += ["--quantization", "int4-fast", "--adapter", "ann/pirate", "--adapter", "poet", "--codec", "int8"]

    ended = swarm("model-load", "tiny", *choices)

    assert ended.code == 0
    assert leader.loads[0] == serving_pb2.LoadModelRequest(
        model_id="tiny",
        num_stages=2,
        fellow_ids=["a", "b"],
        transport=stage_pb2.TRANSPORT_TUNNEL,
        context_tokens=512,
        quantization=weights_pb2.Quantization(method="int4-fast"),
        adapters=["ann/pirate", "poet"],
        codec="int8",
    )


def test_a_load_that_says_nothing_leaves_everything_to_the_model_and_the_leader(swarm: Swarm, leader: ScriptedLeader):
    assert swarm("model-load", "tiny").code == 0

    assert leader.loads[0] == serving_pb2.LoadModelRequest(model_id="tiny", transport=stage_pb2.TRANSPORT_AUTO)


def test_a_plan_that_is_impossible_says_why_with_the_numbers_and_what_to_change(swarm: Swarm, leader: ScriptedLeader):
    leader.too_large = True

    ended = swarm("model-load", "tiny", "--plan", "--quantization", "none")

    assert (ended.code, ended.out, leader.loads) == (1, "", [])
    assert leader.plans[0].quantization.method == "none"
    assert "tiny needs 9 GB with 4,096 tokens of context; free: fellow-1 2 GB." in ended.err
    assert "--num-stages, --context and --quantization nf4" in ended.err


def test_models_show_tells_sizes_split_adapters_and_where_weights_come_from(swarm: Swarm):
    rows = [" ".join(line.split()) for line in swarm("models", "show", "org/trained").out.splitlines()]

    assert rows == [
        "MODEL org/trained",
        "state ready",
        "type qwen3",
        "layers 28",
        "parameters 596.0M",
        "weights 1.1 GiB as stored",
        "nf4 531.0 MiB",
        "int8 718.0 MiB",
        "int4-fast 525.0 MiB",
        "quantization nf4 unless a load says otherwise",
        "context 40960 tokens",
        "split trained over 2 stages",
        "shard 0 layers 0-13, 600.0 MiB, coded as int8 behind it",
        "shard 1 layers 14-27, 537.0 MiB",
        "adapters ann/pirate, ann/poet",
        "weights from https://hub.example/org/trained at 0123abc",
        "source org/trained",
    ]


def test_models_show_tells_what_an_adapter_is_of_and_changes(swarm: Swarm):
    rows = [" ".join(line.split()) for line in swarm("models", "show", "ann/pirate").out.splitlines()]

    assert rows[3:5] == ["adapter of org/trained", "changes q_proj, v_proj; rank 16"]
    assert not [row for row in rows if row.startswith("quantization")]


def test_an_adapter_is_listed_below_its_base(swarm: Swarm):
    rows = swarm("models").out.splitlines()
    base = next(number for number, row in enumerate(rows) if row.startswith("org/trained"))

    assert rows[base + 1].startswith("  ann/pirate") and "adapter" in rows[base + 1]


def test_an_adapter_is_imported_for_its_base_and_a_model_by_reference(swarm: Swarm, leader: ScriptedLeader):
    adapter = swarm("model-import", "ann/pirate-lora", "--base", "org/trained")
    reference = swarm("model-import", "org/trained", "--by-reference")

    assert [(one.base_model_id, one.by_reference) for one in leader.imports] == [("org/trained", False), ("", True)]
    assert adapter.err.splitlines()[-1] == (
        "imported ann/pirate; next: swarm model-load org/trained --adapter ann/pirate --wait"
    )
    assert reference.code == 0


def test_status_shows_how_weights_are_held_and_which_adapters_can_be_asked(swarm: Swarm):
    lines = swarm("status").out.splitlines()

    assert any("nf4, computed in F32" in line for line in lines)
    assert "  adapters: pirate, poet" in lines


def test_a_plan_loads_nothing_and_shows_its_notes(swarm: Swarm, leader: ScriptedLeader):
    ended = swarm("model-load", "tiny", "--plan")

    assert leader.loads == []
    assert "note: one reply at a time: fellow-2" in ended.out


def test_a_plan_shows_the_context(swarm: Swarm):
    default = swarm("model-load", "tiny", "--plan")
    cut = swarm("model-load", "tiny", "--plan", "--context", "99999")

    assert "context 4096 tokens" in default.out and default.err == ""
    assert "context 8192 tokens" in cut.out and cut.err == ""  # that it was cut is a note of the leader's


def test_a_load_that_is_waited_for_shows_each_stage_until_it_is_ready(swarm: Swarm, leader: ScriptedLeader):
    leader.load_ends = (LOADING, READY)

    ended = swarm("model-load", "tiny", "--wait")

    assert ended.code == 0
    assert "stage 0 on fellow-1 weights 50 %" in ended.err
    assert "stage 1 on fellow-2 loaded" in ended.err
    assert "lap 12.5 ms" in ended.out


def test_a_load_that_fails_is_1_with_the_reason(swarm: Swarm, leader: ScriptedLeader):
    leader.load_ends = (LOADING, FAILED)

    ended = swarm("model-load", "tiny", "--wait")

    assert ended.code == 1
    assert "tiny is failed: stage 1 on fellow-2: out of memory" in ended.err


def test_a_refused_load_is_1_with_the_numbers(swarm: Swarm):
    ended = swarm("model-load", "tiny", "--num-stages", "3")

    assert ended.code == 1
    assert "3 stages need as many fellows; 2 are connected" in ended.err


def test_status_shows_stages_fellows_layers_routes_and_live_figures(swarm: Swarm):
    ended = swarm("status")

    assert ended.code == 0
    stage = next(line for line in ended.out.splitlines() if "0-14" in line).split()
    assert stage == ["0", "fellow-1", "0-14", "direct", "loaded", "64.0", "MiB", "77/8192", "3"]
    assert "8.0 GiB" in ended.out


def test_status_shows_the_last_minutes_of_a_model_with_too_long_apart(swarm: Swarm):
    lines = swarm("status").out.splitlines()

    assert "  KV tokens: 8,192 planned; measured to fit: fellow-1 6,000" in lines
    speeds = next(index for index, line in enumerate(lines) if "tokens/s" in line)
    assert lines[speeds : speeds + 2] == [
        "  last 15 min: 41.3 tokens/s; 1,212 done, 3 failed, 2 too long, 1 cancelled",
        "  first token 310 ms (p95 1.20 s), between tokens 24.3 ms (p95 61.0 ms)",
    ]


def test_models_performance_shows_where_the_time_went_and_each_stage(swarm: Swarm):
    ended = swarm("models", "performance", "tiny")

    assert ended.code == 0
    rows = [" ".join(line.split()) for line in ended.out.splitlines()]
    for row in (
        "tiny last 15 min 41.3 tokens/s 4 running, 2 waiting",
        "first token 310 ms 1.20 s 12.4 s",
        "each reply waiting for a start 180 ms",
        "each token stage 0 on fellow-1 8.0 ms 40%",
        "in all 20.0 ms",
        "0 fellow-1 NVIDIA GeForce [GTX] 1660 SUPER 0-14 direct 93% 77/6000",
        "1 fellow-2 NVIDIA GeForce [GTX] 1660 SUPER 15-29 direct - 77/6000",
    ):
        assert row in rows


def test_models_performance_of_a_quiet_model_says_so_and_of_an_unknown_one_is_4(swarm: Swarm):
    quiet, unknown = swarm("models", "performance", "org/quiet"), swarm("models", "performance", "nothing")

    assert "org/quiet  last 41 s  0.0 tokens/s  0 running, 0 waiting" in quiet.out
    assert "no replies" in quiet.out
    assert unknown.code == 4


@pytest.mark.parametrize("act", ["ping", "release", "purge", "update", "delete"])
def test_a_fellow_is_asked_by_name(swarm: Swarm, act: str):
    assert swarm("fellows", act, "fellow-1").code == 0


@pytest.mark.parametrize("act", ["release", "purge"])
def test_what_a_fellow_served_is_said_to_have_ended(swarm: Swarm, act: str):
    assert swarm("fellows", act, "fellow-1").out.rstrip().endswith("any more; that ended org/trained")


def test_deleting_a_fellow_that_runs_says_that_it_joins_again(swarm: Swarm):
    running, gone = swarm("fellows", "delete", "fellow-1"), swarm("fellows", "delete", "fellow-9")

    assert "fellow-1 runs and joins again: stop it first, or use `swarm fellows release`" in running.err
    assert gone.err == ""


def test_an_unknown_fellow_is_4(swarm: Swarm):
    assert swarm("fellows", "ping", "nobody").code == 4


def test_infer_prints_the_reply_alone_on_stdout(swarm: Swarm, leader: ScriptedLeader):
    ended = swarm("infer", "tiny", "Where?", "--max-tokens", "9", "--temperature", "0", "--seed", "7")

    assert (ended.code, ended.err) == (0, "")
    assert ended.out == "[bold]The capital of France is Paris.\n"
    generation = leader.generations[0].generation
    assert generation.chat.messages[0].content == "Where?"
    assert (generation.new_tokens_max, generation.sampling.temperature, generation.sampling.seed) == (9, 0.0, 7)
    assert not generation.sampling.HasField("top_p")


@pytest.mark.parametrize("arguments", [("infer", "tiny", "Where?"), ("chat", "tiny")])
def test_the_temperature_is_low_unless_told_otherwise(swarm: Swarm, leader: ScriptedLeader, arguments: tuple[str, ...]):
    swarm(*arguments, given="Where?\n")
    swarm(*arguments, "--temperature", "0.9", given="Where?\n")

    drawn = [asked.generation.sampling.temperature for asked in leader.generations]
    assert drawn == pytest.approx([0.0, 0.9])
    assert "[default: 0.0" in swarm(arguments[0], "--help").out


def test_infer_raw_takes_its_prompt_from_stdin_without_a_template(swarm: Swarm, leader: ScriptedLeader):
    ended = swarm("infer", "tiny", "-", "--raw", "--json", given="Once upon")

    assert leader.generations[0].generation.prompt == "Once upon"
    document = json.loads(ended.out)
    assert document["text"].endswith("is Paris.")
    assert document["done"]["finish_reason"] == "FINISH_REASON_STOP"


def test_chat_keeps_the_conversation_and_ends_at_quit(swarm: Swarm, leader: ScriptedLeader):
    ended = swarm("chat", "tiny", "--system", "Be short.", given="Where?\n\nReally?\n/quit\nnever sent\n")

    assert ended.code == 0
    assert ended.out == "[bold]The capital of France is Paris.\n" * 2
    second = leader.generations[1].generation.chat.messages
    assert [message.role for message in second] == ["system", "user", "assistant", "user"]
    assert len(leader.generations) == 2


def test_chat_with_an_unknown_model_is_4_before_any_question(swarm: Swarm, leader: ScriptedLeader):
    ended = swarm("chat", "nope", given="Where?\n")

    assert ended.code == 4
    assert leader.generations == []


def test_ctrl_c_stops_a_reply_and_its_session_but_not_the_chat(leader: ScriptedLeader):
    leader.endless = True
    command = [sys.executable, "-m", "swarm_cli", "chat", "tiny", "--leader", leader.address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as chat:
        chat.stdin.write("Where?\n")
        chat.stdin.flush()
        begun = chat.stdout.read(len("[bold]The capital"))
        chat.send_signal(signal.SIGINT)
        was_cancelled = leader.cancelled.wait(timeout=10)
        leader.endless = False
        rest, _ = chat.communicate("And now?\n", timeout=20)

    assert begun == "[bold]The capital"
    assert was_cancelled
    assert "[stopped]" in rest
    assert rest.endswith("is Paris.\n")
    assert chat.returncode == 0


def test_a_reader_that_goes_away_ends_the_command_without_a_traceback(leader: ScriptedLeader):
    leader.endless = True
    command = [sys.executable, "-m", "swarm_cli", "infer", "tiny", "Where?", "--leader", leader.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as infer:
        infer.stdout.read(10)
        infer.stdout.close()
        errors = infer.stderr.read()
        infer.wait(timeout=20)

    assert leader.cancelled.wait(timeout=10)
    assert infer.returncode == 1
    assert "Traceback" not in errors


@pytest.mark.parametrize("command", [(), ("tokens",), ("join-token",), ("trust",), ("models",), ("fellows",)])
def test_help_names_every_command_in_a_whole_sentence(swarm: Swarm, command: tuple[str, ...]):
    shown = swarm(*command, "--help").out

    commands = shown.partition("Commands:")[2].splitlines()
    assert len(commands) > 1 and not [line for line in commands if line.endswith("...")]
