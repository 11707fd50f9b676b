"""Covers of a placement as leader.v1.ModelStatus shows them. Only translation."""

from silentswarm.leader.v1 import serving_pb2

from swarm_leader.flows.registry import Registry


def write_covers(status: serving_pb2.ModelStatus, registry: Registry) -> None:
    """What fellows that are there hold of this placement outside of its ring, in ring order."""
    held = [
        serving_pb2.CoverPlacement(
            stage_index=stage_index,
            fellow_id=fellow.fellow_id,
            fellow_name=fellow.name,
            kind="hot" if cover.is_hot else "warm",
            weight_bytes=cover.weight_bytes,
        )
        for fellow in registry.all()
        if registry.is_connected(fellow.fellow_id)
        for (placement_id, stage_index), cover in fellow.covers.items()
        if placement_id == status.placement_id
    ]
    status.covers.extend(sorted(held, key=lambda cover: (cover.stage_index, cover.fellow_name)))
