"""`python -m tests.bench.prediction MODELS_ROOT`: what a leader predicts of SmolLM2 against what replies then take.

Rings of one to three fellows, each behind a delaying proxy of its own way to the leader, linked by the relay: fellows
that are 0, 5 and 20 ms (one way) away from it. All on this machine, so what stages compute at once is not measured
together: one reply at a time has the ring for itself. Prints a Markdown table; takes about a minute.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from silentswarm.core.v1 import generation_pb2, stage_pb2
from silentswarm.leader.v1 import (
    fleet_pb2,
    fleet_pb2_grpc,
    inference_pb2,
    inference_pb2_grpc,
    serving_pb2,
    serving_pb2_grpc,
)
from swarm_rpc.channel import dial

from tests.bench import conditions
from tests.bench.settings import MODEL, Settings
from tests.delaying_proxy import start_proxy
from tests.e2e.swarm import start, swarm_up

AWAY_S = (0.0, 0.005, 0.020)  # one way from the leader to each fellow
NEW_TOKENS = 48
REPLIES = 2
SETTLED_S = 20.0  # in which fellows join and have measured how far the leader is
PROMPT = "Tell me a long story about a lighthouse. "
# One thread each, as a machine of its own would not share its processors with the others.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "SWARM_STAGE_THREADS": "1", "SWARM_STAGE_SPARE": "off", "SWARM_COVERS": "off"}


@dataclass
class Client:
    """The leader's stubs that are used."""

    serving: serving_pb2_grpc.ServingStub
    inference: inference_pb2_grpc.InferenceStub
    fleet: fleet_pb2_grpc.FleetStub


async def fellows_of(client: Client) -> list[str]:
    """Names of the fellows that are connected and know how far the leader is."""
    listed = await client.fleet.ListFellows(fleet_pb2.ListFellowsRequest(), timeout=10)
    return [one.name for one in listed.fellows if one.hardware.HasField("leader_round_trip_ms")]


async def load(client: Client, names: list[str]) -> serving_pb2.ModelStatus:
    """Load over these fellows by the relay; the status once it serves."""
    await client.serving.LoadModel(
        serving_pb2.LoadModelRequest(model_id=MODEL, fellow_ids=names, transport=stage_pb2.TRANSPORT_TUNNEL), timeout=30
    )
    async for status in client.serving.WatchModel(serving_pb2.WatchModelRequest(model_id=MODEL), timeout=120):
        if status.state == serving_pb2.PLACEMENT_STATE_READY:
            return status
    raise SystemExit(f"it does not serve: {status.reason}")


async def reply(client: Client) -> None:
    """One reply of NEW_TOKENS."""
    sampling = generation_pb2.Sampling(temperature=0.0)
    wanted = generation_pb2.Generation(prompt=PROMPT, new_tokens_max=NEW_TOKENS, ignore_eos=True, sampling=sampling)
    request = inference_pb2.GenerateRequest(model_id=MODEL, generation=wanted)
    async for answer in client.inference.Generate(request, timeout=120):
        if answer.event.WhichOneof("event") == "failed":
            raise SystemExit(answer.event.failed.message)


async def measure(client: Client, names: list[str]) -> str:
    """One row of the table: predicted and measured of a ring over these fellows."""
    predicted = await load(client, names)
    for _ in range(REPLIES):
        await reply(client)
    status = await client.serving.GetModelStatus(serving_pb2.GetModelStatusRequest(model_id=MODEL), timeout=10)
    await client.serving.UnloadModel(serving_pb2.UnloadModelRequest(model_id=MODEL), timeout=30)
    stages = ", ".join(f"{one.predicted_ms:.1f} / {one.measured_ms:.1f}" for one in status.stages)
    links = f"{sum(one.predicted_link_ms for one in predicted.stages):.1f} / {status.measured_link_ms:.1f}"
    speeds = f"{predicted.predicted_tokens_per_s:.1f} | {status.measured_tokens_per_s:.1f}"
    return f"| {', '.join(names)} | {speeds} | {stages} | {links} |"


@asynccontextmanager
async def fleet(models_root: Path, scratch: Path) -> AsyncIterator[tuple[Client, list[str]]]:
    """A leader, and a fellow at each of AWAY_S; ends them with the block."""
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(start_proxy())
        options = ("--no-model", "--fellows", 1, "--model-dir", models_root)
        swarm = await asyncio.to_thread(stack.enter_context, swarm_up(scratch / "up", *options, env=ENVIRONMENT))
        names = []
        for one_way_s in AWAY_S:
            name = f"away-{1000 * one_way_s:.0f}-ms"
            port = await proxy.forward("127.0.0.1", int(swarm.grpc.rpartition(":")[2]), one_way_s)
            state = {"SWARM_FELLOW_STATE_DIR": str(scratch / name), "SWARM_FELLOW_MODEL_CACHE": str(scratch / "cache")}
            leader = ("--leader", f"127.0.0.1:{port}", "--name", name)
            process = start("swarm_fellow", *leader, log=scratch / f"{name}.log", env={**ENVIRONMENT, **state})
            stack.callback(process.stop)
            names.append(name)
        channel = dial(swarm.grpc)
        stack.push_async_callback(channel.close)
        client = Client(
            serving_pb2_grpc.ServingStub(channel),
            inference_pb2_grpc.InferenceStub(channel),
            fleet_pb2_grpc.FleetStub(channel),
        )
        until_s = time.monotonic() + SETTLED_S
        while not set(names) <= set(await fellows_of(client)):
            if time.monotonic() > until_s:
                raise SystemExit(f"in {SETTLED_S:g} s not all fellows joined and measured their way")
            await asyncio.sleep(0.2)
        yield client, names


async def run(settings: Settings) -> None:
    """Print the table."""
    settings.servable  # noqa: B018 - refuses a folder without the model before anything starts
    print(*(f"- {line}" for line in [*conditions.machine(), f"load {conditions.load()}"]), sep="\n")
    print("\n| ring | predicted tokens/s | measured | ms of stages, predicted / measured | links |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as scratch:
        async with fleet(settings.models_root, Path(scratch)) as (client, names):
            for count in range(1, len(names) + 1):
                print(await measure(client, names[:count]), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models_root", type=Path)
    asyncio.run(run(Settings(1, parser.parse_args().models_root)))
