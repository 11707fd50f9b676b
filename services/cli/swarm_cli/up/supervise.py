"""The life of a swarm on one machine: start in order, load, serve, end together. Decides no placement."""

import asyncio
import dataclasses
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from silentswarm.leader.v1 import serving_pb2, tokens_pb2
from swarm_core.errors import SwarmError

from swarm_cli.config import CliConfig
from swarm_cli.credential import ADMIN_FILE
from swarm_cli.failures import FAILED, INTERRUPTED, OK, UP_FIXES, words_of
from swarm_cli.inference import follow_reply, generation_of
from swarm_cli.leader import Leader
from swarm_cli.progress import steps
from swarm_cli.serving import UNLOAD_TIMEOUT_S, wait_until_ready
from swarm_cli.terminal import write_text
from swarm_cli.up.children import ChildDied, Children
from swarm_cli.up.model import DEFAULT_MODEL_ID, ensure_model
from swarm_cli.up.narrator import Narrator
from swarm_cli.up.options import HOST, Machine, UpOptions
from swarm_cli.up.plan import (
    GATEWAY,
    LEADER,
    ChildSpec,
    fellow_names,
    ignored_variables,
    leader_folder,
    metrics_urls,
    plan_chat,
    plan_children,
    scrape_targets,
)
from swarm_cli.up.ready import (
    current_pids,
    fellows_lack,
    gateway_lacks,
    stage_pids,
    until,
    until_leader_ready,
    write_document,
)
from swarm_cli.up.restart import Restarts
from swarm_cli.up.returning import Returning

ONCE_TOKENS = 256
JOIN_WITHIN_S = 600
END_MODEL_S = 4.0  # what is not unloaded by then ends with its process
SCRAPE_FILE = "prometheus-targets.json"  # in the data folder, for Prometheus' file_sd_configs
_NEEDED = {LEADER, GATEWAY}  # without one of these nobody can be served


class Supervisor:
    """One run of `swarm up`, with ports that are chosen already."""

    def __init__(self, options: UpOptions, machine: Machine, config: CliConfig, environ: Mapping[str, str]) -> None:
        self._options = options
        self._machine = machine
        self._environ = environ
        self._children = Children()
        self._restarts = Restarts()
        self._document: dict[str, Any] = {}  # of the ready file
        self._narrator = Narrator(time.monotonic())
        self._address = f"{HOST}:{options.grpc_port}"
        self._base_url = f"http://{HOST}:{options.http_port}"
        own = {"leader": self._address, "leader_ca": "", "data_dir": str(leader_folder(options))}
        self._config = dataclasses.replace(config, **own)
        self._admin_file: Path | None = None
        self._model_id: str | None = None  # of what was loaded here
        self._serves = False  # all is up, and what was asked for has begun
        self._chat_has_terminal = False

    async def run(self) -> int:
        """Until it is told to end, the chat ends, or a process that is needed will not stay. Returns the exit code."""
        self._take_files_away()
        try:
            with self._stop_signals() as stop:
                return await self._until_stopped(stop)
        finally:
            self._take_files_away()

    def _take_files_away(self) -> None:
        """What says where a swarm is, while there is none."""
        for path in (self._options.ready_file, self._scrape_file):
            if path is not None:
                path.unlink(missing_ok=True)

    async def _until_stopped(self, stop: asyncio.Event) -> int:
        """Live until done or told to stop; whatever happens, no child is left."""
        life = asyncio.create_task(self._live())
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({life, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if life.done():
                return life.result()
            asked = self._options.chat or self._options.once is not None
            return INTERRUPTED if asked and not self._serves else OK
        except SwarmError as error:
            self._narrator.warn(f"error: {words_of(error, UP_FIXES)}")
            return FAILED
        finally:
            life.cancel()
            stopped.cancel()
            await asyncio.gather(life, stopped, return_exceptions=True)
            self._narrator.say("ending every process")
            await self._end_model()
            await self._children.stop_all()
            self._narrator.say("ended")

    async def _live(self) -> int:
        """Bring everything up, then do what was asked for."""
        async with Leader(self._config) as leader:
            await self._start(leader)
            status = None if self._options.no_model else await self._children.while_all_live(self._load(leader))
            model_id = self._model_id = status.model_id if status else None
            self._announce(status)
            if self._options.once is not None and model_id is not None:
                return await self._children.while_all_live(self._reply_once(leader, model_id, self._options.once))
            self._serves = True
            if self._options.chat and model_id is not None:
                return await self._chat(leader, model_id)
            self._narrator.say("serving; Ctrl-C ends everything")
            return await self._serve(leader)

    async def _start(self, leader: Leader) -> None:
        """Start every process and wait until each answers."""
        names = fellow_names(self._options)
        self._narrator.say(f"starting a leader, a gateway, {', '.join(names)}; logs in {self._logs}")
        if ignored := ignored_variables(self._environ):
            instead = "everything stays on this machine; for ports use --grpc-port, --http-port and --no-metrics"
            self._narrator.say(f"{', '.join(ignored)} of the environment: ignored; {instead}")
        first, *_ = plan_children(self._options, self._machine, self._environ)
        await self._start_child(first)
        await self._children.while_all_live(until_leader_ready(leader, self._narrator.warn))
        self._narrator.say(f"the leader answers at {self._address}")
        if not self._options.no_model:
            await self._children.while_all_live(self._end_earlier(leader))
        join_token = await self._open_doors(leader)
        _, *others = plan_children(self._options, self._machine, self._environ, join_token)
        for spec in others:
            await self._start_child(spec)
        await self._children.while_all_live(until(lambda: gateway_lacks(self._base_url), "the gateway"))
        self._narrator.say(f"the gateway answers at {self._base_url}")
        await self._children.while_all_live(until(lambda: fellows_lack(leader, names), "the fleet"))
        self._narrator.say(f"connected: {', '.join(names)}")

    async def _start_child(self, spec: ChildSpec) -> None:
        await self._children.start(spec)
        self._restarts.note_start(spec.name, time.monotonic())

    async def _open_doors(self, leader: Leader) -> str:
        """Where tokens are asked for: say where the admin lies, let this run join; returns the join token."""
        me = await leader.ask(leader.tokens.GetSelf, tokens_pb2.GetSelfRequest())
        if not me.enforced:
            return ""
        file = leader_folder(self._options) / ADMIN_FILE
        self._admin_file = file if file.exists() else None
        where = f"; the leader's own is in {file}" if self._admin_file else ""
        self._narrator.say(f"tokens are asked for{where}")
        if self._environ.get("SWARM_JOIN_TOKEN"):
            return ""  # the leader and the fellows have it already
        request = tokens_pb2.CreateJoinTokenRequest(
            label="swarm up", uses=self._options.fellows, expires_in_s=JOIN_WITHIN_S
        )
        return (await leader.ask(leader.tokens.CreateJoinToken, request)).secret

    async def _end_earlier(self, leader: Leader) -> None:
        """End what an earlier run left of the model, before a fellow comes back without it and it counts as a fault."""
        try:
            await self._unload(leader, self._options.model or DEFAULT_MODEL_ID)
        except SwarmError:
            return  # it is not in the catalog yet, or by another name: seen to once it is there

    async def _end_model(self) -> None:
        """Unload what was loaded here while all still live: processes that end one by one look like a fault."""
        if self._model_id is None or LEADER not in self._children.pids():
            return
        with suppress(SwarmError, TimeoutError):
            async with asyncio.timeout(END_MODEL_S), Leader(self._config) as leader:
                await self._unload(leader, self._model_id)

    async def _unload(self, leader: Leader, model_id: str) -> None:
        unload = serving_pb2.UnloadModelRequest(model_id=model_id)
        await leader.ask(leader.serving.UnloadModel, unload, UNLOAD_TIMEOUT_S)

    async def _load(self, leader: Leader) -> serving_pb2.ModelStatus:
        """Import when needed, load, and wait until a test token went through all stages."""
        with steps(self._narrator.started_s) as progress:
            model_id = await ensure_model(leader, self._options.model, progress)
        quantization = self._options.quantization
        held = f", {quantization} weights" if quantization else ""
        self._narrator.say(f"loading {model_id} over {self._options.stages} stages{held}")
        # What an earlier run left in the ledger names processes that are gone.
        await self._unload(leader, model_id)
        request = serving_pb2.LoadModelRequest(
            model_id=model_id,
            num_stages=self._options.stages,
            transport=self._options.transport.proto,
            quantization=quantization.proto if quantization else None,
        )
        await leader.ask(leader.serving.LoadModel, request)
        with steps(self._narrator.started_s) as progress:
            status = await wait_until_ready(leader, model_id, progress)
        self._narrator.say(f"{model_id} is ready: a test token went through all stages")
        return status

    def _announce(self, status: serving_pb2.ModelStatus | None) -> None:
        """Say where to go, and write the ready file."""
        model_id = status.model_id if status else None
        replies = self._options.chat or self._options.once is not None
        metrics = metrics_urls(self._options)
        self._narrator.show_way_in(
            self._base_url, self._address, model_id, metrics, quiet=replies, token_file=self._admin_file
        )
        if metrics:
            write_document(self._scrape_file, scrape_targets(self._options))
        if self._options.ready_file is None:
            return
        pids = self._children.pids()
        if status is not None:
            pids |= stage_pids({name: pids[name] for name in fellow_names(self._options) if name in pids}, status)
        self._document = {
            "http": self._base_url,
            "grpc": self._address,
            "model": model_id,
            "processes": pids,
            "metrics": metrics,
            "admin_token_file": str(self._admin_file) if self._admin_file else None,
        }
        write_document(self._options.ready_file, self._document)

    async def _reply_once(self, leader: Leader, model_id: str, prompt: str) -> int:
        """One greedy reply on stdout."""
        generation = generation_of(ONCE_TOKENS, temperature=0.0, seed=0)
        generation.chat.messages.add(role="user", content=prompt)
        await follow_reply(leader, model_id, generation, write_text)
        sys.stdout.write("\n")
        sys.stdout.flush()
        return OK

    async def _chat(self, leader: Leader, model_id: str) -> int:
        """Serve until the chat ends. On a terminal Ctrl-C reaches the chat too, which alone knows what it means."""
        self._chat_has_terminal = sys.stdin.isatty()
        self._narrator.is_beside_chat = True
        try:
            await self._children.start(plan_chat(self._options, model_id, self._environ))
            return await self._serve(leader)
        finally:
            self._chat_has_terminal = self._narrator.is_beside_chat = False

    async def _serve(self, leader: Leader) -> int:
        """Watch the children, and start again what dies, until the chat ends or one will not stay."""
        returning = Returning(leader, self._base_url, self._narrator.say)
        try:
            return await self._serve_on(returning)
        finally:
            returning.close()

    async def _serve_on(self, returning: Returning) -> int:
        while True:
            try:
                async with asyncio.timeout(self._restarts.next_in_s(time.monotonic())):
                    death = await self._children.next_death()
            except TimeoutError:
                await self._start_due(returning)
                continue
            if death.facts["name"] == "chat":
                return OK
            returning.forget(str(death.facts["name"]))
            if self._is_the_end(death):
                self._narrator.warn(death.message)
                return FAILED

    def _is_the_end(self, death: ChildDied) -> bool:
        """Whether nothing goes on after this death; otherwise it is told, and the next start is due."""
        name = death.facts["name"]
        if not self._options.restart:
            if name not in _NEEDED:
                self._narrator.warn(death.message)
            return name in _NEEDED
        wait_s = self._restarts.note_death(name, time.monotonic())
        if wait_s is not None:
            self._narrator.warn(f"{name} {death.facts['how']}; started again in {wait_s:g} s")
        return wait_s is None

    async def _start_due(self, returning: Returning) -> None:
        """Start what is due: the same ports and folders. The ready file names the new processes."""
        for name in self._restarts.take_due(time.monotonic()):
            await self._children.start_again(name)
            self._restarts.note_start(name, time.monotonic())
            returning.watch(name)
        if self._options.ready_file is not None:
            named: dict[str, int] = self._document["processes"]
            self._document["processes"] = current_pids(named, self._children.pids())
            write_document(self._options.ready_file, self._document)

    @property
    def _scrape_file(self) -> Path:
        return self._options.data_dir / SCRAPE_FILE

    @property
    def _logs(self) -> str:
        return str(self._options.data_dir / "logs")

    @contextmanager
    def _stop_signals(self) -> Iterator[asyncio.Event]:
        """An event set by the first SIGINT, SIGTERM or SIGHUP; a second one kills at once.

        SIGINT is left to a chat that has the terminal.
        """
        stop = asyncio.Event()

        def on_signal(number: int) -> None:
            if number == signal.SIGINT and self._chat_has_terminal:
                return
            if stop.is_set():
                self._children.kill_all()
            stop.set()

        loop = asyncio.get_running_loop()
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        for number in numbers:
            loop.add_signal_handler(number, on_signal, number)
        try:
            yield stop
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)
                # All has ended and the exit code is known; a late Ctrl-C must not turn it into another.
                signal.signal(number, signal.SIG_IGN)
