"""What a stage is made of: its files fetched, its process told to build it. For loads and covers; keeps no stage."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog
from silentswarm.core.v1 import stage_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from silentswarm.stage.v1 import stage_pb2 as rpc_pb2
from swarm_core.errors import BadRequest, CapabilityMissing, LoadFailed, Reason, StageFailed, SwarmError
from swarm_core.listen import join_host_port
from swarm_rpc.race import run_until_first

from swarm_fellow.domain.capabilities import ADAPTERS_MAX
from swarm_fellow.domain.device_runs import DeviceRun, place_layers
from swarm_fellow.flows.load_watch import watch_load
from swarm_fellow.flows.stages import HeldStage, StageState
from swarm_fellow.host.weights.fetch import FetchedModel, FetchedSlice, ModelRef, SliceFetcher
from swarm_fellow.rpc.convert import describe_stage

log = structlog.get_logger()
EXIT_WAIT_S = 2.0  # for a process that broke off its load to end

# Told (step, done, total); bytes for "fetch" and "weights", processes for "start".
LoadProgress = Callable[[str, int, int], None]
# What asks for a stage to be built: both have spec, listen and device_runs.
BuildSignal = link_pb2.LoadSignal | link_pb2.CoverSignal


@dataclass(frozen=True)
class StageSettings:
    """What every stage of this machine is told.

    choose_device: where one more stage runs now, "cpu" or "cuda:0". device_names: all there are, in the order in which
    they are reported. advertise_host: what peers dial. lora: "lean", "lean16" or "peft".
    fourbit_rows: "auto", "off" or a row limit. fourbit_float32: "auto" or "off".
    bind_host: empty does not listen. in_flight_max: sessions a stage may be planned for, as this fellow declared.
    batch_max: sessions of a decode step where the leader sets no cap; 0 is no cap. attention: "auto", "grouped" or
    "sdpa". measure_step_costs: also where the leader does not ask for it. tls_dir: folder with what
    links prove themselves with, "" for plaintext links. listens_in_tls_alone: and with plaintext ones, not at all.
    tape_bytes_max: of a stage's output, kept to rebuild the next one from; 0 keeps none.
    """

    choose_device: Callable[[], Awaitable[str]]
    threads: int
    prefill_chunk_tokens: int
    bind_host: str
    advertise_host: str
    in_flight_max: int
    batch_max: int
    attention: str
    measure_step_costs: bool
    tls_dir: Callable[[], str] = lambda: ""
    listens_in_tls_alone: bool = False
    lora: str = "lean"
    fourbit_rows: str = "auto"
    fourbit_float32: str = "auto"
    device_names: Callable[[], Sequence[str]] = lambda: ("cpu",)
    tape_bytes_max: int = 0

    def applied_to(self, spec: stage_pb2.StageSpec) -> stage_pb2.StageSpec:
        """What the stage is told to be: the leader's plan, and our own choice where it leaves one."""
        told = stage_pb2.StageSpec()
        told.CopyFrom(spec)
        told.batch_max = spec.batch_max or self.batch_max
        told.measure_step_costs = spec.measure_step_costs or self.measure_step_costs
        return told


class StageBuilder:
    """Fetches slices and has processes build them."""

    def __init__(self, fetcher: SliceFetcher, settings: StageSettings) -> None:
        self._fetcher = fetcher
        self._settings = settings

    def check(self, signal: BuildSignal) -> None:
        """Refuse what cannot be built here, before anything is fetched. Raises BadRequest, CapabilityMissing."""
        spec = signal.spec
        if not spec.placement_id or not spec.model_id:
            raise BadRequest("a stage needs a placement and a model", field="spec")
        if len(spec.adapters) > ADAPTERS_MAX:
            raise BadRequest(f"{len(spec.adapters)} adapters of one stage; at most {ADAPTERS_MAX}", field="adapters")
        self._placed(signal)
        if spec.in_flight_max > self._settings.in_flight_max:
            # Planned and then refused reply by reply, it would look served and answer OVERLOADED.
            raise CapabilityMissing(
                f"{describe_stage(spec)} is planned for {spec.in_flight_max} requests in flight; this fellow holds "
                f"{self._settings.in_flight_max} (SWARM_SERVE_MAX_IN_FLIGHT)",
                planned=spec.in_flight_max,
                in_flight_max=self._settings.in_flight_max,
            )

    async def fetch(self, spec: stage_pb2.StageSpec, progress: LoadProgress) -> FetchedSlice:
        """Bring what a stage needs to disk, adapters too. Raises what SliceFetcher.fetch raises."""
        return await self._fetcher.fetch(
            ModelRef(spec.weights_model_id or spec.model_id, spec.manifest_sha256),
            spec.layer_start,
            spec.layer_stop,
            lambda done, total: progress("fetch", done, total),
            [ModelRef(adapter.model_id, adapter.manifest_sha256) for adapter in spec.adapters],
        )

    async def build(
        self, stage: HeldStage, fetched: FetchedSlice, signal: BuildSignal, progress: LoadProgress
    ) -> link_pb2.LoadDone:
        """Have the process of a stage build it. Raises what the stage says; see explain."""
        loaded = await self._build(stage, fetched, signal, progress)
        done = link_pb2.LoadDone(
            weight_bytes=loaded.weight_bytes,
            fetched_bytes=fetched.fetched_bytes,
            kv_tokens_measured=loaded.kv_tokens_measured,
            quantization=loaded.quantization,
            notes=loaded.notes,
            device_weight_bytes=loaded.device_weight_bytes,
        )
        if loaded.ring_port:
            done.ring_addresses.append(join_host_port(self._settings.advertise_host, loaded.ring_port))
        return done

    async def _build(
        self, stage: HeldStage, fetched: FetchedSlice, signal: BuildSignal, progress: LoadProgress
    ) -> rpc_pb2.Loaded:
        tls_dir, listen = self._settings.tls_dir(), signal.listen
        if listen and self._settings.listens_in_tls_alone and not tls_dir:
            log.warning("no direct links: the leader gives no certificate", bind_host=self._settings.bind_host)
            listen = False
        placed = self._placed(signal)
        request = rpc_pb2.LoadRequest(
            spec=self._settings.applied_to(stage.spec),
            model_dir=str(fetched.base.model_dir.absolute()),
            tensor_files=_paths(fetched.base),
            adapters=[
                rpc_pb2.AdapterFiles(
                    model_id=ref.model_id, model_dir=str(adapter.model_dir.absolute()), tensor_files=_paths(adapter)
                )
                for ref, adapter in zip(stage.spec.adapters, fetched.adapters, strict=True)
            ],
            device=placed[0].device if placed else await self._settings.choose_device(),
            device_layers=[
                rpc_pb2.DeviceLayers(device=run.device, layer_start=run.layer_start, layer_stop=run.layer_stop)
                for run in placed
                if len(placed) > 1
            ],
            lora=self._settings.lora,
            fourbit_rows=self._settings.fourbit_rows,
            fourbit_float32=self._settings.fourbit_float32,
            threads=self._settings.threads,
            prefill_chunk_tokens=self._settings.prefill_chunk_tokens,
            ring_bind_host=self._settings.bind_host if listen else "",
            attention=self._settings.attention,
            tls_dir=tls_dir,
            tape_bytes_max=self._settings.tape_bytes_max,
        )
        loaded: list[rpc_pb2.Loaded] = []

        async def load() -> None:
            async for event in stage.client().load(request):
                if event.WhichOneof("event") == "loaded":
                    loaded.append(event.loaded)
                else:
                    progress(event.progress.step, event.progress.done, event.progress.total)

        await run_until_first(load(), watch_load(stage))
        return loaded[0]  # StageClient.load ends with it, or raises

    def _placed(self, signal: BuildSignal) -> list[DeviceRun]:
        """Which layers go where, by this machine's names; empty leaves it to us. Raises BadRequest."""
        asked = [(run.device_index, run.layer_start, run.layer_stop) for run in signal.device_runs]
        spec = signal.spec
        return place_layers(asked, self._settings.device_names(), spec.layer_start, spec.layer_stop)

    async def explain(self, stage: HeldStage, error: Exception) -> Exception:
        """What to tell about a failed build: its own reason, or, as StageFailed, how its process ended or fell silent.

        LoadFailed would say that it fails here whenever it is tried; a process that is lost says no such thing.
        """
        if stage.state is StageState.ENDING and isinstance(error, SwarmError):
            return LoadFailed(f"{describe_stage(stage.spec)} {stage.end_reason} before it was loaded")
        if not isinstance(error, SwarmError) or error.why is not Reason.UNAVAILABLE or stage.process is None:
            return error
        try:
            async with asyncio.timeout(EXIT_WAIT_S):
                how = await stage.process.wait()
        except TimeoutError:
            how = f"stopped answering: {error.message}"
        return StageFailed(
            f"the process of {describe_stage(stage.spec)} {how}",
            stage=stage.spec.stage_index,
            model=stage.spec.model_id,
        )


def _paths(model: FetchedModel) -> dict[str, str]:
    return {name: str(path.absolute()) for name, path in model.tensor_files.items()}
