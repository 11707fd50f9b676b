"""Having one fellow load one stage, and what the ring takes from what it measured. Plans and wires nothing."""

from dataclasses import replace

from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from swarm_core.errors import FellowLost, NotEnoughMemory, RemoteError, SwarmError
from swarm_core.manifest import WEIGHT_BYTES_MAX
from swarm_core.quantization import METHODS

from swarm_leader.config import LeaderConfig
from swarm_leader.domain import ledger as rules
from swarm_leader.domain.holding import measured_runs
from swarm_leader.domain.records import StageRecord, Transport
from swarm_leader.flows.board import Board, Placement, StageLive
from swarm_leader.flows.registry import Held, Registry
from swarm_leader.flows.signals import Signals
from swarm_leader.flows.uncover import make_way
from swarm_leader.flows.words import load_to_proto

NOTES_MAX = 16  # of one stage
NOTE_CHARACTERS_MAX = 500


class StageLoading:
    """Loads stages."""

    def __init__(self, board: Board, registry: Registry, signals: Signals, config: LeaderConfig) -> None:
        self._board = board
        self._registry = registry
        self._signals = signals
        self._config = config

    async def load(self, placement: Placement, stage: StageRecord) -> None:
        """Have the fellow of a stage load it, and record that it did.

        Raises LoadFailed naming both, FellowLost, StaleEpoch.
        """
        await self.keep(placement, stage, await self.send(placement, stage, placement.stages[stage.stage_index]))

    async def keep(self, placement: Placement, stage: StageRecord, loaded: rules.LoadedStage) -> None:
        """Record that the fellow of a stage loaded it. Raises StaleEpoch."""
        name = self._registry.name_of(stage.fellow_id)
        await self._board.save(
            placement,
            lambda current: rules.set_loaded(current, stage.stage_index, loaded, name),
            f"stage {stage.stage_index} loaded on {name}",
        )

    async def send(self, placement: Placement, stage: StageRecord, live: StageLive) -> rules.LoadedStage:
        """Have the fellow of a stage load it; `live` shows how far it is. Raises as load does, but for StaleEpoch."""
        fellow = self._registry.get(stage.fellow_id)
        record = placement.record
        listen = (
            len(record.stages) > 1
            and record.transport is not Transport.TUNNEL
            and fellow is not None
            and fellow.capabilities.direct_link
        )

        def show(progress: link_pb2.SignalProgress) -> None:
            live.step, live.done, live.total = progress.step, progress.done, progress.total
            self._board.notify(placement.model_id)

        try:
            await make_way(self._registry, self._signals, record.placement_id, stage, self._config.unload_timeout_s)
            link = self._registry.link_of(stage.fellow_id)
            by_device = fellow is not None and fellow.capabilities.serve_devices
            signal = load_to_proto(record, stage, listen, self._config.step_costs, by_device)
            live.loaded_epoch = record.epoch
            answer = await self._signals.send(link, signal, self._config.load_timeout_s, show)
        except FellowLost:
            raise
        except SwarmError as error:
            raise _name_stage(error, stage.stage_index, self._registry.name_of(stage.fellow_id)) from error
        live.step, live.done, live.total = "", 0, 0
        live.ring_addresses = tuple(answer.load.ring_addresses)
        live.fetched_bytes = answer.load.fetched_bytes
        loaded = _read_loaded(answer.load)
        if fellow is not None:
            held = fellow.stages.setdefault(record.placement_id, Held())
            held.ring_addresses, held.weight_bytes = live.ring_addresses, loaded.weight_bytes
            runs = measured_runs(stage.devices, loaded.weight_bytes_by_device)
            held.device_bytes = {run.device_index: run.weight_bytes for run in runs}
            if fellow.capabilities.serve_kv_budget or answer.load.kv_tokens_measured:
                live.kv_tokens_measured = answer.load.kv_tokens_measured
        return loaded

    async def fit_kv(self, placement: Placement) -> None:
        """Have the ring admit by what its tightest stage measured; the first stage alone would not know.

        Raises NotEnoughMemory, naming the fellow, when not even one whole conversation fits; StaleEpoch.
        """
        record = placement.record
        measured = {
            stage: tokens
            for stage in record.stages
            if (tokens := placement.stages[stage.stage_index].kv_tokens_measured) is not None
        }
        if not measured:
            return
        tightest = min(measured, key=lambda stage: measured[stage])
        least, name = measured[tightest], self._registry.name_of(tightest.fellow_id)
        if least < record.context_tokens:
            raise NotEnoughMemory(
                f"fellow {name} has room for {least:,} tokens beside its stage, fewer than the "
                f"{record.context_tokens:,} tokens of context; ask for a shorter context or free memory on it",
                fellow=name,
                measured_tokens=least,
                context_tokens=record.context_tokens,
            )
        if least < record.kv_tokens:
            words = f"{name} has room for {least:,} tokens of KV beside its stage, {record.kv_tokens:,} were planned"
            await self._board.save(
                placement, lambda current: replace(current, kv_tokens=least, notes=(*current.notes, words)), words
            )


def _read_loaded(done: link_pb2.LoadDone) -> rules.LoadedStage:
    """What a fellow reports of a load, bounded."""
    return rules.LoadedStage(
        weight_bytes=done.weight_bytes if done.weight_bytes <= WEIGHT_BYTES_MAX else 0,
        quantization=done.quantization if done.quantization in METHODS else "",
        notes=tuple(note[:NOTE_CHARACTERS_MAX] for note in done.notes[:NOTES_MAX]),
        device_weight_bytes=tuple(min(count, WEIGHT_BYTES_MAX) for count in done.device_weight_bytes),
    )


def _name_stage(error: SwarmError, stage_index: int, fellow_name: str) -> SwarmError:
    """The same reason, with the stage and the fellow it came from."""
    facts: dict[str, object] = {**error.facts, "stage": stage_index, "fellow": fellow_name}
    return RemoteError(error.why, f"stage {stage_index} on {fellow_name}: {error.message}", **facts)
