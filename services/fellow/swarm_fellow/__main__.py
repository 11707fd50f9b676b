"""swarm-fellow: puts one fellow together from the environment and runs it. Decides nothing; alone reads os.environ."""

import argparse
import asyncio
import importlib.metadata
import os
import random
import signal
import socket
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import structlog
from swarm_core.clock import SystemClock
from swarm_core.config import describe_variables
from swarm_core.errors import SwarmError
from swarm_core.families import SERVED_MODEL_TYPES
from swarm_core.listen import is_loopback
from swarm_core.logs import configure_logs
from swarm_rpc.limits import FRAME_BYTES_MAX

from swarm_fellow.config import FellowConfig, read_config
from swarm_fellow.domain.capabilities import Offer, declare_capabilities
from swarm_fellow.domain.quantizing import methods_installed, runs_int4_fast
from swarm_fellow.flows.building import StageBuilder, StageSettings
from swarm_fellow.flows.covers import Covers
from swarm_fellow.flows.fellow import Fellow
from swarm_fellow.flows.link import Introduction, LeaderLink, LinkParts
from swarm_fellow.flows.load import Loader
from swarm_fellow.flows.log_push import LogPush
from swarm_fellow.flows.maintenance import Maintenance
from swarm_fellow.flows.serve import ReplyServer
from swarm_fellow.flows.spare import SpareKeeper
from swarm_fellow.flows.stages import StageLimits, StageTable
from swarm_fellow.flows.survey import Survey
from swarm_fellow.flows.vitals import Vitals
from swarm_fellow.host.address import advertised_host, bind_address, read_interfaces
from swarm_fellow.host.benchmark import Benchmark
from swarm_fellow.host.certificates import NodeCertificates
from swarm_fellow.host.credential import NodeCredential
from swarm_fellow.host.hardware import MIB, Hardware, cpu_count
from swarm_fellow.host.hardware_reader import HardwareReader
from swarm_fellow.host.identity import StateFolder
from swarm_fellow.host.installed import is_installed, processor_flags
from swarm_fellow.host.leader_door import LeaderDoor
from swarm_fellow.host.log_tap import LogTap
from swarm_fellow.host.notify import ServiceNotifier
from swarm_fellow.host.stage_process import StageHost
from swarm_fellow.host.vitals import VitalsReader
from swarm_fellow.host.weights.cache import ModelCache
from swarm_fellow.host.weights.cache_room import CacheRoom
from swarm_fellow.host.weights.fetch import SliceFetcher
from swarm_fellow.host.weights.hub_door import HubAccess, proxies_of
from swarm_fellow.host.weights.hub_source import HubSource
from swarm_fellow.host.weights.local_source import LocalModels
from swarm_fellow.metrics import FellowMetrics, FellowReadings
from swarm_fellow.rpc.convert import capabilities_to_proto, known_capabilities
from swarm_fellow.rpc.transfer import TRANSFER_MESSAGE_BYTES_MAX, TransferClient

STAGE_COMMAND = (sys.executable, "-m", "swarm_stage", "serve")
log = structlog.get_logger()


def compose(
    config: FellowConfig,
    state: StateFolder,
    environ: Mapping[str, str],
    stage_command: Sequence[str] = STAGE_COMMAND,
    tap: LogTap | None = None,
) -> Fellow:
    """Put a fellow together; needs a running loop. tap: takes its own log. Raises BadRequest, DiskFull."""
    config = replace(config, ring_bind_host=bind_address(config.bind_host, read_interfaces()))
    clock, draw = SystemClock(), random.random
    tap = tap or LogTap(clock)
    threads = config.stage_threads or cpu_count()
    host = StageHost(stage_command, state.path, environ, tap=tap.add_output)
    limits = StageLimits(config.loaded_models_max, config.idle_unload_s, config.stage_silent_max_s)
    table = StageTable(host, limits, clock, draw)
    door = LeaderDoor(config.leader, config.leader_ca, config.join_token, state.path, config.allow_insecure)
    certificates = NodeCertificates(state.path, clock)
    transfer = TransferClient(lambda: door.dial(TRANSFER_MESSAGE_BYTES_MAX))
    lent = Hardware(config.memory_mb * MIB, config.stage_device)
    hardware = HardwareReader(lent, down_bytes_per_s=lambda: transfer.down_bytes_per_s)
    hardware.begin_measuring(threads)
    benchmark = Benchmark(state.path, threads, environ, clock) if config.benchmark == "auto" else None
    notifier = ServiceNotifier(environ)
    room = CacheRoom(config.model_cache, int(config.cache_max_gb * 2**30))
    hub = HubSource(HubAccess(config.hf_endpoint, config.hf_token, proxies_of(environ)))
    near = (LocalModels(config.local_folders, clock), hub)
    fetcher = SliceFetcher(transfer, ModelCache(config.model_cache), room, clock, draw, near)
    builder = StageBuilder(fetcher, _stage_settings(config, hardware, certificates))
    covers = Covers(host, builder, table, clock, config.stage_silent_max_s)
    loader = Loader(table, builder, covers)
    spare = SpareKeeper(host, table, config.stage_spare, clock, covers, config.memory_mb * MIB)
    maintenance = Maintenance(table, loader, covers, spare, room)
    introduction = _introduction(config, state.identity(), hardware.card_capabilities())
    replies = ReplyServer(table, config.in_flight_max, clock, draw, introduction.process_nonce)
    link = LeaderLink(
        introduction=introduction,
        parts=LinkParts(
            hardware=hardware,
            table=table,
            loader=loader,
            covers=covers,
            maintenance=maintenance,
            replies=replies,
            survey=Survey(hardware, benchmark, clock),
            vitals=_vitals(config, hardware, table, tap),
            log_push=LogPush(tap, is_on="logs" not in config.withheld),
            clock=clock,
            draw=draw,
            relay_default=config.relay or config.leader,
            on_credential=transfer.present,
            door=door,
            certificates=certificates,
            credential=NodeCredential(state.path),
        ),
        on_state=notifier.status,
    )
    metrics = _metrics(link, table, replies, fetcher, room)
    return Fellow(link, maintenance, table, host, (transfer, hub, replies), notifier, metrics, config.metrics_listen)


def _stage_settings(config: FellowConfig, hardware: HardwareReader, certificates: NodeCertificates) -> StageSettings:
    return StageSettings(
        choose_device=hardware.choose_device,
        threads=config.stage_threads or cpu_count(),
        prefill_chunk_tokens=config.prefill_chunk_tokens,
        bind_host=config.bind_host,
        advertise_host=advertised_host(config.bind_host, config.ring_advertise_host, config.leader),
        tape_bytes_max=config.tape_mb * 2**20,
        in_flight_max=config.in_flight_max,
        batch_max=max(0, config.batch_max),
        attention=config.attention,
        lora=config.lora,
        fourbit_rows=config.fourbit_rows,
        fourbit_float32=config.fourbit_float32,
        device_names=hardware.device_names,
        measure_step_costs=config.step_costs,
        tls_dir=lambda: certificates.tls_dir,
        listens_in_tls_alone=not (is_loopback(config.bind_host) or config.allow_insecure),
    )


def _metrics(
    link: LeaderLink, table: StageTable, replies: ReplyServer, fetcher: SliceFetcher, room: CacheRoom
) -> FellowMetrics:
    readings = FellowReadings(
        statuses=table.statuses,
        is_connected=lambda: link.is_connected,
        registrations=lambda: link.registrations,
        reply_streams_reopened=lambda: replies.reopened,
        stage_crashes=lambda: table.crashes,
        fetched_bytes=lambda: fetcher.fetched_bytes,
        cache_bytes=room.held_bytes,
    )
    return FellowMetrics(readings)


def _vitals(config: FellowConfig, hardware: HardwareReader, table: StageTable, tap: LogTap) -> Vitals:
    return Vitals(
        VitalsReader(hardware.device_names, config.model_cache),
        device_names=hardware.device_names,
        round_trip_ms=lambda: hardware.leader_round_trip_ms,
        crashes=lambda: table.crashes,
        errors=lambda: tap.errors,
        out_of_memory=lambda: tap.out_of_memory,
    )


def _introduction(config: FellowConfig, identity: str, card_capabilities: Sequence[str]) -> Introduction:
    offer = Offer(
        loaded_models_max=config.loaded_models_max,
        in_flight_max=config.in_flight_max,
        listens=bool(config.bind_host),
        frame_bytes_max=FRAME_BYTES_MAX,
        model_types=tuple(SERVED_MODEL_TYPES),
        prefill_chunk_tokens=config.prefill_chunk_tokens,
        quantizations=methods_installed(is_installed("bitsandbytes")),
        splits_rows=config.fourbit_rows != "off",
        card_count=len(card_capabilities),
        int4_fast=runs_int4_fast(is_installed("torchao"), card_capabilities, processor_flags()),
    )
    declared = declare_capabilities(offer, config.withheld, known_capabilities())
    return Introduction(
        identity=identity,
        name=config.name or socket.gethostname(),
        join_token=config.join_token,
        version=importlib.metadata.version("silentswarm"),
        capabilities=capabilities_to_proto(declared),
        process_nonce=uuid.uuid4().hex,
        pool=config.pool,
    )


async def serve(config: FellowConfig, state: StateFolder, environ: Mapping[str, str], tap: LogTap) -> bool:
    """Run until SIGTERM, SIGINT or an UPDATE, then give everything back. Returns whether to start the program anew."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return await compose(config, state, environ, tap=tap).run(stop)


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """The few flags; everything else is an environment variable, listed by --help."""
    parser = argparse.ArgumentParser(
        prog="swarm-fellow",
        description="Lends this machine to a swarm: joins a leader and serves the stages it is given.",
        epilog=f"environment variables:\n{describe_variables(FellowConfig)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--leader", metavar="HOST:PORT", help="the leader's gRPC port (SWARM_LEADER)")
    parser.add_argument("--name", help="name of this machine for people (SWARM_FELLOW_NAME)")
    parser.add_argument(
        "--state-dir", metavar="DIR", type=Path, help="folder for identity and logs (SWARM_FELLOW_STATE_DIR)"
    )
    return parser.parse_args(arguments)


def main() -> None:
    """The console script. Exits 0 after a stop, 2 when it cannot start, with one line that says why.

    After an UPDATE it becomes its own command line again instead of exiting.
    """
    arguments = parse_arguments(sys.argv[1:])
    try:
        config = read_config(
            os.environ,
            leader=arguments.leader,
            name=arguments.name,
            state_dir=arguments.state_dir,
        )
        tap = LogTap(SystemClock())
        configure_logs("fellow", config.log_level, config.log_json, also=tap.add)
        with StateFolder(config.state_dir) as state:
            is_update = asyncio.run(serve(config, state, dict(os.environ), tap))
        if is_update:  # the same process to whoever started it, with the program as it lies on disk now
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    except SwarmError as error:
        print(f"swarm-fellow: {error.message}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
