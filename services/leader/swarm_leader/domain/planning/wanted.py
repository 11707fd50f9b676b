"""What is to be placed, with everything that decides how: the model, its adapters, the form asked for. Plain facts."""

from collections.abc import Sequence
from dataclasses import dataclass

from swarm_core.manifest import Manifest
from swarm_core.quantization import INT4_FAST, NONE

from swarm_leader.domain.capabilities import FellowFacts
from swarm_leader.domain.holding import AdapterRef, AdapterUse
from swarm_leader.domain.planning.budget import AdapterCost, stored_dtype
from swarm_leader.domain.planning.link_codecs import needed_codecs
from swarm_leader.domain.planning.plan import PlanRequest, ServeDefaults
from swarm_leader.domain.planning.ring_needs import RingNeeds


@dataclass(frozen=True)
class AdapterWish:
    """An adapter to hold. is_alone: it is the model that is served, and not one of several to choose from."""

    manifest: Manifest
    manifest_sha256: str
    is_alone: bool = False


@dataclass(frozen=True)
class Wanted:
    """One try to place a model. manifest: of the weights. context_tokens: as short as the model needs it.

    quantization: of this try. halves_storage: hold full-precision weights in the half type they are stored in.
    """

    manifest: Manifest
    request: PlanRequest
    defaults: ServeDefaults
    context_tokens: int
    adapters: tuple[AdapterWish, ...] = ()
    quantization: str = NONE
    halves_storage: bool = False

    @property
    def is_bound(self) -> bool:
        """Whether the model can be served over the stages of its training alone."""
        return self.manifest.split is not None and not self.manifest.split.recorded

    def needs(self, stage_count: int) -> RingNeeds:
        """What every fellow of such a ring must be able to do."""
        return RingNeeds(
            model_type=self.manifest.model_type,
            stage_count=stage_count,
            transport=self.request.transport,
            quantization=self.quantization,
            storage_dtype=stored_dtype(self.manifest) if self.halves_storage else "",
            adapters=tuple(adapter.manifest.model_id for adapter in self.adapters),
            codecs=needed_codecs(self.request.codec, self.manifest.split, stage_count),
        )

    def layer_starts(self, stage_count: int) -> tuple[int, ...]:
        """Where the stages begin when the model was trained with as many; empty leaves the cuts free."""
        split = self.manifest.split
        return split.layer_starts if split is not None and split.stage_count == stage_count else ()

    def adapter_refs(self, storage_dtype: str) -> tuple[AdapterRef, ...]:
        """How each adapter is used. storage_dtype: of the weights, "" is what is computed in."""
        return tuple(
            AdapterRef(wish.manifest.model_id, wish.manifest_sha256, self._use(wish, storage_dtype))
            for wish in self.adapters
        )

    def adapter_costs(self, storage_dtype: str) -> tuple[AdapterCost, ...]:
        """The adapters that take memory of their own; merged ones are part of the weights."""
        uses = [(wish.manifest, self._use(wish, storage_dtype)) for wish in self.adapters]
        return tuple(
            AdapterCost(manifest, use is AdapterUse.ALWAYS) for manifest, use in uses if use is not AdapterUse.MERGED
        )

    def _use(self, wish: AdapterWish, storage_dtype: str) -> AdapterUse:
        """Merged into weights that are held coarser than they are computed in, an adapter loses what it learned. Into
        int4-fast it is merged all the same, as the specification has it.
        """
        if not wish.is_alone:
            return AdapterUse.CHOSEN
        is_exact = self.quantization == NONE and not storage_dtype
        return AdapterUse.MERGED if is_exact or self.quantization == INT4_FAST else AdapterUse.ALWAYS


def prefill_chunk_tokens(ring: Sequence[FellowFacts]) -> int:
    """Prompt tokens per piece: the first stage cuts prompts for the whole ring. 0 when it does not say."""
    serve = ring[0].capabilities.serve
    return serve.prefill_chunk_tokens if serve else 0
