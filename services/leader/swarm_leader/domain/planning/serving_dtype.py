"""Which type a ring computes in. Pure."""

from collections.abc import Sequence

from swarm_core.errors import BadRequest
from swarm_core.manifest import DTYPE_BYTES, Manifest

from swarm_leader.domain.capabilities import FellowFacts
from swarm_leader.domain.planning.budget import stored_dtype
from swarm_leader.domain.planning.plan import ServeDefaults
from swarm_leader.domain.planning.refusals import lacking

HALVES = ("F16", "BF16")
SERVED_DTYPES = ("F32", *HALVES)


def serving_dtype(manifest: Manifest, ring: Sequence[FellowFacts], defaults: ServeDefaults) -> str:
    """One type for the whole ring: the operator's; else F32 when a fellow computes in it; else the stored one.

    A half type that a card of the ring does not compute in gives way to the half type that it does.
    """
    stored = stored_dtype(manifest)
    computed = {fellow.compute_dtype for fellow in ring}
    if defaults.dtype:
        dtype = defaults.dtype
    elif "F32" in computed or stored not in SERVED_DTYPES:
        dtype = "F32"
    elif stored in HALVES and "F16" in computed:
        dtype = "F16"
    else:
        dtype = stored
    if dtype not in SERVED_DTYPES or dtype not in DTYPE_BYTES:
        raise BadRequest(
            f"SWARM_SERVE_DTYPE={dtype!r} is not served; use {', '.join(SERVED_DTYPES)}", field="SWARM_SERVE_DTYPE"
        )
    if len(ring) > 1:
        for fellow in ring:
            spoken = fellow.capabilities.wire.dtypes if fellow.capabilities.wire else ()
            if spoken and dtype not in spoken:
                raise lacking(fellow.name, "wire.dtypes", f"it sends {', '.join(spoken)}, the ring computes in {dtype}")
    return dtype
