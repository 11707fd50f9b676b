"""Routes: direct where both ends can, the relay otherwise, and what is tried after a failure."""

import pytest
from swarm_core.errors import BadRequest
from swarm_leader.domain.planning.mesh import read_networks, usable_addresses
from swarm_leader.domain.planning.routes import drop_unlisted, fall_back, plan_routes
from swarm_leader.domain.records import Route, Transport

from tests.unit.leader.model_facts import make_fellow

DIRECT, RELAY, LOCAL = Route.DIRECT, Route.RELAY, Route.LOCAL


def test_a_lone_stage_has_no_link():
    assert plan_routes([make_fellow("a")], Transport.P2P) == ((LOCAL,), ())


def test_the_tunnel_is_the_relay_everywhere():
    assert plan_routes([make_fellow("a"), make_fellow("b")], Transport.TUNNEL) == ((RELAY, RELAY), ())


def test_only_the_links_of_a_fellow_without_direct_links_go_by_the_relay():
    ring = [make_fellow("a"), make_fellow("b"), make_fellow("c", direct_link=False)]

    routes, notes = plan_routes(ring, Transport.AUTO)

    assert routes == (DIRECT, RELAY, RELAY)
    assert notes == ("c lacks direct_link: its links go by the relay",)


def test_a_ring_that_takes_no_new_epoch_does_not_try_what_it_could_not_undo():
    routes, notes = plan_routes([make_fellow("a"), make_fellow("b", serve_rewire=False)], Transport.AUTO)

    assert routes == (RELAY, RELAY)
    assert "b lacks serve_rewire" in notes[0]


def test_a_stage_that_listens_nowhere_is_reached_by_the_relay():
    assert drop_unlisted((DIRECT, DIRECT), (True, False), Transport.AUTO) == (RELAY, DIRECT)
    assert drop_unlisted((DIRECT, DIRECT), (True, False), Transport.P2P) == (DIRECT, DIRECT)


def test_auto_falls_back_on_the_failed_links_then_on_all():
    assert fall_back((DIRECT, DIRECT), {1: "refused"}, Transport.AUTO) == (DIRECT, RELAY)
    assert fall_back((DIRECT, RELAY), {}, Transport.AUTO) == (RELAY, RELAY)
    assert fall_back((RELAY, RELAY), {}, Transport.AUTO) is None
    assert fall_back((DIRECT, RELAY), {1: "no relay"}, Transport.AUTO) is None


def test_p2p_and_tunnel_have_nothing_to_fall_back_to():
    assert fall_back((DIRECT, DIRECT), {0: "refused"}, Transport.P2P) is None
    assert fall_back((RELAY, RELAY), {0: "refused"}, Transport.TUNNEL) is None


NETWORKS = read_networks("10.8.0.0/24, fd00:8::/64")


def test_a_mesh_is_dialled_over_addresses_of_overlay_networks_alone():
    """Tailscale's are known; others have to be named, for nothing tells a WireGuard network from somebody's home."""
    offered = ("192.168.1.2:4000", "100.101.1.2:4000", "[fd7a:115c:a1e0::7]:4000", "10.8.0.3:4000", "[fd00:8::1]:4000")

    assert usable_addresses(offered, Transport.MESH, NETWORKS) == offered[1:]
    assert usable_addresses(offered, Transport.AUTO, NETWORKS) == offered
    assert usable_addresses(("attic.example:4000", "nonsense"), Transport.MESH, NETWORKS) == ()


def test_a_mesh_demands_direct_links_and_falls_back_to_nothing():
    assert plan_routes([make_fellow("a"), make_fellow("b")], Transport.MESH) == ((DIRECT, DIRECT), ())
    assert fall_back((DIRECT, DIRECT), {0: "refused"}, Transport.MESH) is None
    assert [transport.demands_direct for transport in Transport] == [False, False, True, True]


def test_a_mistyped_network_is_refused_by_its_variable():
    with pytest.raises(BadRequest, match=r"SWARM_MESH_NETWORKS: '10\.8\.0\.1/24'"):
        read_networks("10.8.0.1/24")
