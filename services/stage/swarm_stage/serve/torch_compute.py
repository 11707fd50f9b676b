"""The engine's Compute over a real slice: caches per session, frames to tensors and back. Engine thread only."""

import time
from collections.abc import Sequence

import numpy as np
import structlog
import torch
from swarm_core.errors import BadFrame, StageFailed, SwarmError
from swarm_core.slices import LayerRange

from swarm_stage.engine.reply import Likelihood
from swarm_stage.engine.steps import Outcome, Step, WireHidden
from swarm_stage.model.drawer import Drawer
from swarm_stage.model.kv_cache import SessionCache
from swarm_stage.model.slice_model import SliceModel
from swarm_stage.serve.hidden_wire import HiddenWire

log = structlog.get_logger()


class TorchCompute:
    """Runs steps on a slice, one session's failure kept to itself."""

    def __init__(
        self,
        model: SliceModel,
        layers: LayerRange,
        dtype: str,
        device: str,
        codec_in: str = "",
        codec_out: str = "",
    ) -> None:
        """codec_in, codec_out: how hidden states are coded on the links; "" is not at all."""
        self._model = model
        self._layers = layers
        self._wire = HiddenWire(dtype, device, codec_in, codec_out)
        self._caches: dict[int, SessionCache] = {}
        self._drawers: dict[int, Drawer] = {}  # of sessions that have drawn

    @property
    def vocabulary_size(self) -> int:
        return self._model.vocabulary_size

    @property
    def batches(self) -> bool:
        return self._model.batches

    def open(self, session: int, reserved_tokens: int, adapter: str = "") -> None:
        place = self._model.adapter_place(adapter)
        try:
            self._caches[session] = self._model.new_cache(reserved_tokens, place)
        except RuntimeError as error:  # how torch says that memory is short, on every device
            raise StageFailed(f"no memory for the {reserved_tokens} positions of a session: {error}") from error

    def close(self, session: int) -> None:
        self._caches.pop(session, None)
        self._drawers.pop(session, None)

    def detach(self, session: int) -> SessionCache | None:
        self._drawers.pop(session, None)
        return self._caches.pop(session, None)

    def attach(self, session: int, held: SessionCache, length: int) -> bool:
        held.crop(length)
        if held.length != length:
            return False
        self._caches[session] = held
        return True

    def held_tokens(self) -> int:
        return sum(cache.length for cache in self._caches.values())

    def forward(self, steps: Sequence[Step]) -> list[Outcome]:
        together = [step for step in steps if self._batches(step)]
        outcomes = self._forward_batch(together) if len(together) > 1 else {}
        return [outcomes.get(step.session) or self._forward_one(step) for step in steps]

    def _batches(self, step: Step) -> bool:
        """A decode step: one position right behind what its session holds, on a model that runs rows together."""
        cache = self._caches.get(step.session)
        if cache is None or not self._model.batches or not step.pos or cache.length != step.pos:
            return False
        positions = len(step.ids) if step.ids is not None else step.hidden.shape[0] if step.hidden else 0
        return positions == 1

    def _forward_batch(self, steps: Sequence[Step]) -> dict[int, Outcome]:
        """Several sessions' next positions in one pass, which reads every weight once; outcomes by session.

        Whatever goes wrong with the pass as a whole gives no outcome: each session is then run alone, and keeps or
        loses its own.
        """
        started_ns = time.perf_counter_ns()
        caches = [self._caches[step.session] for step in steps]
        positions = [step.pos for step in steps]
        try:
            hidden_B1D = self._model.run_batch(self._rows(steps), caches, positions)
            logits_BV = self._model.logits_batch(hidden_B1D).cpu().numpy() if self._layers.is_last else None
        except Exception as failure:
            log.warning("a batch failed and is run one by one", sessions=len(steps), exc_info=failure)
            for cache, pos in zip(caches, positions, strict=True):
                cache.crop(pos)
            return {}
        if logits_BV is None:
            hiddens = self._wire.write_rows(hidden_B1D)
            compute_us = (time.perf_counter_ns() - started_ns) // 1000
            return {
                step.session: Outcome(compute_us, error=hidden)
                if isinstance(hidden, SwarmError)
                else Outcome(compute_us, hidden)
                for step, hidden in zip(steps, hiddens, strict=True)
            }
        computed_ns = time.perf_counter_ns()
        drawn = [self._draw_guarded(logits_BV[row], step) for row, step in enumerate(steps)]
        sample_us = (time.perf_counter_ns() - computed_ns) // 1000
        compute_us = (computed_ns - started_ns) // 1000
        return {
            step.session: Outcome(compute_us, None, token, error, sample_us, likelihood)
            for step, (token, likelihood, error) in zip(steps, drawn, strict=True)
        }

    def _rows(self, steps: Sequence[Step]) -> torch.Tensor:
        """hidden_B1D of a batch, from ids or from the wire."""
        if self._layers.is_first:
            return self._model.embed([step.ids[0] for step in steps if step.ids]).transpose(0, 1)
        return self._wire.read_rows([step.hidden for step in steps if step.hidden is not None])[:, None]

    def _forward_one(self, step: Step) -> Outcome:
        started_ns = computed_ns = time.perf_counter_ns()
        hidden: WireHidden | None = None
        token: int | None = None
        likelihood: Likelihood | None = None
        error: SwarmError | None = None
        try:
            result = self._compute(step)
            computed_ns = time.perf_counter_ns()
            if isinstance(result, WireHidden):
                hidden = result
            elif result is not None:
                token, likelihood, error = self._draw_guarded(result, step)
        except SwarmError as failure:
            error = failure
        except Exception as failure:  # whatever torch or a model raises is this session's alone
            log.warning("a step failed", session=step.session, pos=step.pos, exc_info=failure)
            error = StageFailed(f"computing session {step.session} at {step.pos} failed: {failure}")
        sample_us = (time.perf_counter_ns() - computed_ns) // 1000
        return Outcome((computed_ns - started_ns) // 1000, hidden, token, error, sample_us, likelihood)

    def _compute(self, step: Step) -> WireHidden | np.ndarray | None:
        """Hidden states for the next stage; on the last one logits_V, or nothing when no token is wanted."""
        cache = self._cache_at(step)
        if step.ids is not None:
            hidden_BTD = self._model.embed(step.ids)
        else:
            assert step.hidden is not None
            hidden_BTD = self._wire.read(step.hidden)
        hidden_BTD = self._model.run(hidden_BTD, cache, step.pos)
        if not self._layers.is_last:
            return self._wire.write(hidden_BTD)
        return self._model.logits(hidden_BTD).cpu().numpy() if step.sample else None

    def _draw_guarded(
        self, logits_V: np.ndarray, step: Step
    ) -> tuple[int | None, Likelihood | None, SwarmError | None]:
        """The token behind a step, or why this session's cannot be drawn."""
        assert step.sampling is not None
        positions = len(step.ids) if step.ids is not None else step.hidden.shape[0] if step.hidden else 0
        try:
            drawer = self._drawers.get(step.session)
            if drawer is None:
                drawer = Drawer(step.sampling, step.prompt_ids)
                drawer.restore(step.pos + positions, step.drawn_ids)
                self._drawers[step.session] = drawer
            return *drawer.draw(logits_V, step.pos + positions, step.allowed_V, step.held_ids), None
        except SwarmError as error:
            return None, None, error
        except Exception as failure:
            log.warning("a token was not drawn", session=step.session, pos=step.pos, exc_info=failure)
            return None, None, StageFailed(f"drawing for session {step.session} at {step.pos} failed: {failure}")

    def _cache_at(self, step: Step) -> SessionCache:
        """The session's cache, cropped to where the step starts. Raises BadFrame when it holds less."""
        cache = self._caches.get(step.session)
        if cache is None:
            raise BadFrame(f"session {step.session} is not known here")
        if cache.length < step.pos:
            raise BadFrame(f"session {step.session} holds {cache.length} positions; a frame starts at {step.pos}")
        if cache.length > step.pos:
            cache.crop(step.pos)
            if step.session in self._drawers:
                self._drawers[step.session].crop(step.pos)
        return cache
