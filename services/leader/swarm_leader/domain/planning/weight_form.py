"""In which form a ring holds the weights: one type to compute in, one to store, one quantisation. Pure."""

from collections.abc import Sequence

from swarm_leader.domain.capabilities import FellowFacts
from swarm_leader.domain.planning.budget import WeightForm, stored_dtype
from swarm_leader.domain.planning.serving_dtype import HALVES, serving_dtype
from swarm_leader.domain.planning.wanted import Wanted


def form_of(wanted: Wanted, ring: Sequence[FellowFacts]) -> WeightForm:
    """The form for this very ring. Raises BadRequest, CapabilityMissing as serving_dtype does."""
    dtype = serving_dtype(wanted.manifest, ring, wanted.defaults)
    stored = stored_dtype(wanted.manifest)
    can = dtype == "F32" and stored in HALVES and all(stored in one.capabilities.storage_dtypes for one in ring)
    is_stored_so = can and (wanted.halves_storage or bool(_f32_cards(ring)))
    return WeightForm(dtype, wanted.quantization, stored if is_stored_so else "")


def may_store_in_half(wanted: Wanted, fellows: Sequence[FellowFacts]) -> bool:
    """Whether holding weights in the half type they are stored in could make them fit at all."""
    stored = stored_dtype(wanted.manifest)
    return stored in HALVES and any(stored in fellow.capabilities.storage_dtypes for fellow in fellows)


def storage_notes(form: WeightForm, ring: Sequence[FellowFacts]) -> list[str]:
    """Why weights are held in another type than they are computed in, in words; none when they are not."""
    if not form.storage_dtype:
        return []
    cards = _f32_cards(ring)
    why = f"the cards of {', '.join(cards)} compute in F32 alone" if cards else "in F32 they would not fit"
    return [f"weights are held in {form.storage_dtype} and computed in {form.dtype}: {why}"]


def _f32_cards(ring: Sequence[FellowFacts]) -> list[str]:
    return [fellow.name for fellow in ring if any(device.is_f32_card for device in fellow.devices)]
