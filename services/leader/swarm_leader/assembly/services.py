"""Which services of a leader a server answers for. Answers none itself."""

import grpc
from silentswarm.fellow.v1 import fellow_link_pb2_grpc, inference_link_pb2_grpc, transfer_pb2_grpc
from silentswarm.leader.v1 import (
    fleet_pb2_grpc,
    inference_pb2_grpc,
    models_pb2_grpc,
    resilience_pb2_grpc,
    serving_pb2_grpc,
    status_pb2_grpc,
    tokens_pb2_grpc,
    trust_pb2_grpc,
)
from silentswarm.relay.v1 import relay_pb2_grpc

from swarm_leader.assembly.leader import Leader
from swarm_leader.assembly.relaying import RELAY_SERVICE
from swarm_leader.catalog.import_roots import read_import_roots
from swarm_leader.catalog.importer import Importer
from swarm_leader.flows.doors import check_fetch
from swarm_leader.flows.fleet import Fleet
from swarm_leader.flows.generate import Generating
from swarm_leader.flows.network import Network
from swarm_leader.flows.ready import ReadyRings
from swarm_leader.rpc.access import current_caller
from swarm_leader.rpc.fellow_link import FellowLinkServicer
from swarm_leader.rpc.fleet import FleetServicer
from swarm_leader.rpc.inference import InferenceServicer
from swarm_leader.rpc.inference_link import InferenceLinkServicer
from swarm_leader.rpc.models import ModelsServicer
from swarm_leader.rpc.performance import PerformanceWriter
from swarm_leader.rpc.placements import StatusWriter
from swarm_leader.rpc.resilience import ResilienceServicer
from swarm_leader.rpc.serving import ServingServicer
from swarm_leader.rpc.status import StatusServicer
from swarm_leader.rpc.tokens import TokensServicer
from swarm_leader.rpc.transfer import TransferServicer
from swarm_leader.rpc.trust import TrustServicer
from swarm_leader.version import VERSION

FOR_PEOPLE = (
    "Models",
    "Serving",
    "Inference",
    "Fleet",
    "Status",
    "Tokens",
    "Trust",
    "Telemetry",
    "Logs",
    "Resilience",
)
FOR_FELLOWS = ("FellowLink", "InferenceLink", "Transfer", "FellowLogs")
LEADER_SERVICES = (
    *(f"silentswarm.leader.v1.{name}" for name in FOR_PEOPLE),
    *(f"silentswarm.fellow.v1.{name}" for name in FOR_FELLOWS),
    RELAY_SERVICE,
)


def add_services(leader: Leader, server: grpc.aio.Server) -> None:
    """Let a server answer for a leader, for all of LEADER_SERVICES."""
    _add_links(leader, server)
    _add_models(leader, server)
    _add_fleet(leader, server)
    leader.watching.add_to(server)
    tokens = TokensServicer(leader.doors.tokens, leader.doors.join_tokens)
    tokens_pb2_grpc.add_TokensServicer_to_server(tokens, server)
    trust_pb2_grpc.add_TrustServicer_to_server(TrustServicer(leader.identity), server)
    status_pb2_grpc.add_StatusServicer_to_server(StatusServicer(leader.health, VERSION), server)
    relay_pb2_grpc.add_RelayServicer_to_server(leader.relay, server)


def _add_links(leader: Leader, server: grpc.aio.Server) -> None:
    """What fellows call."""
    fellow_link = FellowLinkServicer(
        leader.joining,
        leader.registry,
        leader.signals,
        leader.faults,
        leader.identity,
        leader.config.heartbeat_s,
        leader.config.lease_s,
        leader.watching.telemetry,
        Network(leader.registry, leader.board),
    )
    fellow_link_pb2_grpc.add_FellowLinkServicer_to_server(fellow_link, server)
    inference_link = InferenceLinkServicer(leader.registry, leader.replies)
    inference_link_pb2_grpc.add_InferenceLinkServicer_to_server(inference_link, server)

    def check(model_id: str) -> None:
        fellow_id = current_caller().fellow_id
        fellow = leader.registry.get(fellow_id)
        covering = {placement_id for placement_id, _ in fellow.covers_made} if fellow is not None else ()
        check_fetch(leader.board, fellow_id, model_id, covering)

    transfer_pb2_grpc.add_TransferServicer_to_server(TransferServicer(leader.catalog, check=check), server)


def _add_models(leader: Leader, server: grpc.aio.Server) -> None:
    """Models, where they serve, and their replies."""
    config, catalog, board, registry, gates = (
        leader.config,
        leader.catalog,
        leader.board,
        leader.registry,
        leader.gates,
    )
    importer = Importer(
        config.models_root, is_loaded=leader.shared.is_loaded, roots=read_import_roots(config.import_roots)
    )
    models_pb2_grpc.add_ModelsServicer_to_server(ModelsServicer(catalog, importer, board.state_of), server)
    serving = ServingServicer(
        leader.loading,
        board,
        catalog,
        StatusWriter(registry, gates, leader.measuring),
        PerformanceWriter(registry, gates, leader.measuring),
        config.transport,
    )
    serving_pb2_grpc.add_ServingServicer_to_server(serving, server)
    ready = ReadyRings(catalog, board, leader.loading, gates, config.load_timeout_s)
    generating = Generating(
        catalog, board, registry, ready, leader.faults, leader.replies, gates, leader.measuring, config
    )
    inference = InferenceServicer(generating, leader.doors, leader.clock.monotonic_s)
    inference_pb2_grpc.add_InferenceServicer_to_server(inference, server)


def _add_fleet(leader: Leader, server: grpc.aio.Server) -> None:
    """Machines, and what befell them."""
    fleet = Fleet(
        leader.registry,
        leader.store.fellows,
        leader.signals,
        leader.faults,
        leader.clock,
        leader.config.unload_timeout_s,
        leader.doors.calls,
    )
    telemetry = leader.watching.telemetry
    fleet_pb2_grpc.add_FleetServicer_to_server(
        FleetServicer(fleet, leader.draining, leader.registry, leader.clock, telemetry), server
    )
    resilience_pb2_grpc.add_ResilienceServicer_to_server(ResilienceServicer(leader.store.incidents), server)
