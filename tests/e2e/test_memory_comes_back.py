"""Memory is only borrowed: every way a fellow's use of a model ends gives it back, with real processes, within 10 s.

The rows of the seed's table of VRAM lifecycle, and the two ways to be killed. One leader for all; each row ends a stage
of its own: its process must be gone, and where its fellow lives, the fellow must report the memory as free again.
"""

import hashlib
import json
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import grpc
import numpy as np
import psutil
import pytest
from safetensors.numpy import save_file
from silentswarm.leader.v1 import fleet_pb2, fleet_pb2_grpc, serving_pb2, serving_pb2_grpc
from swarm_core.manifest import FileEntry, Manifest, TensorEntry, manifest_to_json

from tests.e2e.swarm import Process, free_port, is_alive, run_cli, start, wait_for

GONE_S = 10.0
LENT_BYTES = 2048 * 2**20
WIDTH, VOCABULARY, LAYERS, HEADS = 32, 64, 2, 4
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": LAYERS,
    "hidden_size": WIDTH,
    "intermediate_size": 2 * WIDTH,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}
# Fellow -> (models it holds at first, environment).
FELLOWS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "several": (("unload", "stage-killed", "stop"), {"SWARM_MAX_LOADED_MODELS": "3"}),
    "single": (("evict",), {}),
    "idle": (("idle",), {"SWARM_MODEL_IDLE_UNLOAD_S": "5"}),
    "update": (("update",), {}),
    "term": (("term",), {}),
    "killed": (("killed",), {}),
}
MODELS = (*(model for models, _ in FELLOWS.values() for model in models), "purge")


def write_servables(root: Path) -> None:
    """The same tiny random llama under every name."""
    random = np.random.default_rng(1)
    shapes = {"model.embed_tokens.weight": (VOCABULARY, WIDTH), "model.norm.weight": (WIDTH,)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        shapes |= {f"{at}self_attn.{one}_proj.weight": (WIDTH, WIDTH) for one in "qkvo"}
        shapes |= {f"{at}mlp.{one}_proj.weight": (2 * WIDTH, WIDTH) for one in ("gate", "up")}
        shapes |= {f"{at}mlp.down_proj.weight": (WIDTH, 2 * WIDTH)}
        shapes |= {f"{at}{one}_layernorm.weight": (WIDTH,) for one in ("input", "post_attention")}
    tensors = {name: random.standard_normal(shape, dtype=np.float32) * 0.1 for name, shape in shapes.items()}
    vocabulary = {f"<{word}>": word for word in range(VOCABULARY)}
    tokenizer = {"version": "1.0", "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<0>"}}
    tokenizer |= {
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": None,
    }
    small = {
        "config.json": json.dumps(CONFIG),
        "tokenizer/tokenizer.json": json.dumps(tokenizer | {"truncation": None, "padding": None}),
        "tokenizer/tokenizer_config.json": json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}),
    }
    for model in MODELS:
        folder = root / model
        for name, text in small.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        (folder / "base").mkdir()
        save_file(tensors, folder / "base" / "model.safetensors")
        (folder / "servable.json").write_bytes(manifest_to_json(manifest_of(model, folder, tensors, small)))


def manifest_of(model: str, folder: Path, tensors: dict[str, np.ndarray], small: dict[str, str]) -> Manifest:
    """servable.json of one model."""
    raw = (folder / "base" / "model.safetensors").read_bytes()
    length = int.from_bytes(raw[:8], "little")
    entries = {}
    for name, facts in json.loads(raw[8 : 8 + length]).items():
        begin, end = (8 + length + offset for offset in facts["data_offsets"])
        sha256 = hashlib.sha256(raw[begin:end]).hexdigest()
        shape = tensors[name].shape
        entries[name] = TensorEntry("base/model.safetensors", begin, end - begin, facts["dtype"], shape, sha256)
    files = {name: FileEntry(len(text), hashlib.sha256(text.encode()).hexdigest()) for name, text in small.items()}
    sizes = (WIDTH, VOCABULARY, HEADS, WIDTH // HEADS, True, 128)
    return Manifest(model, "llama", LAYERS, *sizes, entries, files)


class Home:
    """A leader and its fellows, as processes. pids: of the stage of each model, once loaded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"127.0.0.1:{free_port()}"
        self.fellows: dict[str, Process] = {}
        self.pids: dict[str, int] = {}
        env = {
            "SWARM_GRPC_PORT": self.address.rpartition(":")[2],
            "SWARM_DATA_DIR": str(folder / "leader"),
            "SWARM_SERVABLE_MODELS_ROOT": str(folder / "servables"),
            "SWARM_HEARTBEAT_S": "0.3",
        }
        self.leader = start("swarm_leader", log=folder / "leader.log", env=env)
        channel = grpc.insecure_channel(self.address)
        grpc.channel_ready_future(channel).result(60)
        self.serving = serving_pb2_grpc.ServingStub(channel)
        self.fleet = fleet_pb2_grpc.FleetStub(channel)

    def start_fellow(self, name: str, env: dict[str, str]) -> None:
        state = self.folder / name
        shared = {"SWARM_FELLOW_MEMORY_MB": str(LENT_BYTES // 2**20), "SWARM_STAGE_THREADS": "1"}
        shared |= {"SWARM_FELLOW_MODEL_CACHE": str(state / "models"), "SWARM_MODEL_IDLE_UNLOAD_S": "0"}
        arguments = ("--leader", self.address, "--name", name, "--state-dir", state)
        self.fellows[name] = start("swarm_fellow", *arguments, log=self.folder / f"{name}.log", env=shared | env)

    def known(self, name: str) -> fleet_pb2.Fellow | None:
        """A fellow as the leader knows it, while it is connected."""
        for fellow in self.fleet.ListFellows(fleet_pb2.ListFellowsRequest()).fellows:
            if fellow.name == name and fellow.state == "connected":
                return fellow
        return None

    def begin_load(self, model: str, fellow: str) -> None:
        self.serving.LoadModel(serving_pb2.LoadModelRequest(model_id=model, num_stages=1, fellow_ids=[fellow]))

    def await_load(self, model: str, fellow: str) -> int:
        """Wait until it served, were it for a moment. Returns the process id of its stage, as its fellow logged it."""
        request = serving_pb2.WatchModelRequest(model_id=model)
        states = [status.state for status in self.serving.WatchModel(request, timeout=120)]
        served = (serving_pb2.PLACEMENT_STATE_READY, serving_pb2.PLACEMENT_STATE_IDLE)
        assert states[-1] in served, f"{model}: {self.fellows[fellow].tail()}"
        lines = self.fellows[fellow].log.read_text().splitlines()
        started = [re.search(r"pid=(\d+)", line) for line in lines if "stage process started" in line]
        self.pids[model] = int(started[-1].group(1))
        return self.pids[model]

    def end(self) -> None:
        for process in (*self.fellows.values(), self.leader):
            process.stop()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """Everything loaded that the rows need; fellows load side by side, and the stages of one after each other."""
    folder = tmp_path_factory.mktemp("memory")
    write_servables(folder / "servables")
    home = Home(folder)
    try:
        for name, (_, env) in FELLOWS.items():
            home.start_fellow(name, env)
        for name in FELLOWS:
            wait_for(lambda name=name: home.known(name), 60, f"{name} joined")
        for place in range(max(len(models) for models, _ in FELLOWS.values())):
            now = [(models[place], name) for name, (models, _) in FELLOWS.items() if place < len(models)]
            for model, name in now:
                home.begin_load(model, name)
            for model, name in now:
                home.await_load(model, name)
        yield home
    finally:
        home.end()


def fleet_call(call: str) -> Callable[[Home, str], object]:
    request = getattr(fleet_pb2, f"{call}Request")
    return lambda home, fellow: getattr(home.fleet, call)(request(fellow_id=fellow), timeout=30)


def model_unload(home: Home, fellow: str) -> None:
    """Sends UNLOAD."""
    assert run_cli("model-unload", "unload", leader=home.address).returncode == 0


def load_another(home: Home, fellow: str) -> None:
    home.begin_load("purge", fellow)


def kill_stage(home: Home, fellow: str) -> None:
    psutil.Process(home.pids["stage-killed"]).kill()


def wait_for_nothing(home: Home, fellow: str) -> None:
    """Nobody asks for anything."""


@pytest.mark.parametrize(
    ("fellow", "model", "act"),
    [
        pytest.param("several", "unload", model_unload, id="swarm model-unload and its UNLOAD signal"),
        pytest.param("several", "stage-killed", kill_stage, id="stage kill -9"),
        pytest.param("several", "stop", fleet_call("ReleaseFellow"), id="STOP signal"),
        pytest.param("idle", "idle", wait_for_nothing, id="no request for SWARM_MODEL_IDLE_UNLOAD_S"),
        pytest.param("single", "evict", load_another, id="a model past SWARM_MAX_LOADED_MODELS"),
        pytest.param("update", "update", fleet_call("UpdateFellow"), id="UPDATE signal"),
    ],
)
def test_memory_is_back_while_its_fellow_lives(home: Home, fellow: str, model: str, act: Callable[[Home, str], object]):
    pid = home.pids[model]
    with suppress(psutil.NoSuchProcess):
        assert psutil.Process(pid).memory_info().rss > 50 * 2**20
    act(home, fellow)
    wait_for(lambda: not is_alive(pid), GONE_S + (5 if model == "idle" else 0), f"the stage of {model} is gone")
    others = [other for other in home.pids.values() if other != pid and is_alive(other)]
    wait_for(lambda: is_free_again(home, fellow, others), GONE_S, f"{fellow} reports the memory as free")

    assert is_alive(home.fellows[fellow].pid)


def is_free_again(home: Home, fellow: str, others: list[int]) -> bool:
    """Whether all that is lent is free but for what the fellow's other stages take."""
    known = home.known(fellow)
    if known is None:
        return False
    held_bytes = sum(stage.memory_bytes for stage in known.stages)
    spare_bytes = psutil.virtual_memory().available
    expected_bytes = min(LENT_BYTES - held_bytes, spare_bytes)
    return known.hardware.devices[0].memory_free_bytes >= expected_bytes - 200 * 2**20


def test_memory_is_back_after_a_purge_and_nothing_is_cached(home: Home):
    """The PURGE row; its stage is the one that evicted another."""
    if "purge" not in home.pids:
        with suppress(grpc.RpcError):
            home.begin_load("purge", "single")
        home.await_load("purge", "single")
    pid = home.pids["purge"]
    assert is_alive(pid)
    fleet_call("PurgeFellow")(home, "single")
    wait_for(lambda: not is_alive(pid), GONE_S, "the stage is gone")
    wait_for(lambda: is_free_again(home, "single", []), GONE_S, "the memory is reported as free")

    cache = home.folder / "single" / "models"
    assert [path for path in cache.rglob("*") if path.is_file() and path.name != "lock"] == []


@pytest.mark.parametrize(
    ("fellow", "number"),
    [("term", signal.SIGTERM), ("killed", signal.SIGKILL)],
    ids=["fellow SIGTERM", "fellow kill -9"],
)
def test_memory_is_back_when_its_fellow_ends(home: Home, fellow: str, number: signal.Signals):
    pid = home.pids[fellow]
    assert is_alive(pid)
    began_s = time.monotonic()
    home.fellows[fellow].popen.send_signal(number)
    wait_for(lambda: not is_alive(pid), GONE_S, "the stage is gone")
    code = home.fellows[fellow].popen.wait(GONE_S)

    assert code == (0 if number is signal.SIGTERM else -signal.SIGKILL)
    assert time.monotonic() - began_s < 2 * GONE_S


def test_an_updated_fellow_comes_back_in_the_same_process_and_holds_nothing(home: Home):
    fellow = wait_for(lambda: home.known("update"), 30, "the fellow is back")

    assert is_alive(home.fellows["update"].pid) and not is_alive(home.pids["update"])
    assert list(fellow.stages) == []
