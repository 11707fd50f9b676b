"""How each stage of a ring reaches the next: what to try first and what to fall back to. Pure."""

from collections.abc import Mapping, Sequence

from swarm_leader.domain.capabilities import FellowFacts
from swarm_leader.domain.records import Route, Transport


def plan_routes(ring: Sequence[FellowFacts], transport: Transport) -> tuple[tuple[Route, ...], tuple[str, ...]]:
    """The way of each link before anything was tried, and what was chosen for lack of a capability, in words."""
    if len(ring) == 1:
        return (Route.LOCAL,), ()
    if transport is Transport.TUNNEL:
        return (Route.RELAY,) * len(ring), ()
    fixed = [fellow.name for fellow in ring if not fellow.capabilities.serve_rewire]
    if fixed and transport is Transport.AUTO:
        why = "a direct link that fails could not fall back, so every link goes by the relay"
        return (Route.RELAY,) * len(ring), (
            f"{', '.join(fixed)} {'lacks' if len(fixed) == 1 else 'lack'} serve_rewire: {why}",
        )
    routes = []
    for index, fellow in enumerate(ring):
        following = ring[(index + 1) % len(ring)]
        both = fellow.capabilities.direct_link and following.capabilities.direct_link
        routes.append(Route.DIRECT if both else Route.RELAY)
    notes = tuple(
        f"{fellow.name} lacks direct_link: its links go by the relay"
        for fellow in ring
        if not fellow.capabilities.direct_link
    )
    return tuple(routes), notes


def drop_unlisted(routes: Sequence[Route], listens: Sequence[bool], transport: Transport) -> tuple[Route, ...]:
    """In AUTO, a link whose far end listens nowhere goes by the relay. listens: one per stage, in ring order."""
    if transport is not Transport.AUTO:
        return tuple(routes)
    count = len(routes)
    return tuple(
        Route.RELAY if route is Route.DIRECT and not listens[(index + 1) % count] else route
        for index, route in enumerate(routes)
    )


def fall_back(routes: Sequence[Route], failed: Mapping[int, str], transport: Transport) -> tuple[Route, ...] | None:
    """What to try next after an attempt failed; None when nothing is left.

    failed: links that did not come up, by the stage that dials; empty when all did and the lap failed.
    """
    if transport is not Transport.AUTO or Route.DIRECT not in routes:
        return None
    if not failed:
        return tuple(Route.RELAY if route is Route.DIRECT else route for route in routes)
    if any(routes[index] is not Route.DIRECT for index in failed):
        return None
    return tuple(Route.RELAY if index in failed else route for index, route in enumerate(routes))
