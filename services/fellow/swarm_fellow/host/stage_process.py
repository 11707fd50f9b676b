"""Stage processes: started by exec, watched, stopped, never left behind. Knows no model and no ring."""

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import structlog
from swarm_core.errors import DiskFull, StageFailed, SwarmError

from swarm_fellow.domain.silence import ProcessState, Vitality
from swarm_fellow.host.stage_log import OutputTap, StageLog
from swarm_fellow.rpc.stage_client import StageClient

log = structlog.get_logger()

START_TIMEOUT_S = 60.0  # importing torch from a cold disk takes tens of seconds
SPARE_START_TIMEOUT_S = 300.0  # it imports at a lower priority, beside whatever computes
SPARE_ANSWER_S = 1.0
LAST_WORDS_S = 1.0  # a grandchild could hold the pipe of an ended process open for ever
SOCKET_POLL_S = 0.03
SOCKET_PATH_MAX = 100  # the kernel allows 107 characters
# A stage needs none of these: the first are secrets, the others speak for the fellow.
SECRET_VARIABLES = (
    "SWARM_JOIN_TOKEN",
    "SWARM_API_KEY",
    "SWARM_RELAY_SECRET",
    "SWARM_DATABASE_URL",
    "SWARM_ALERT_SECRET",
    "SWARM_ALERT_SMTP_URL",
    "SWARM_ALERT_WEBHOOK",
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
)
_STATES = {
    psutil.STATUS_RUNNING: ProcessState.HELD_UP,
    psutil.STATUS_WAKING: ProcessState.HELD_UP,
    psutil.STATUS_DISK_SLEEP: ProcessState.HELD_UP,
    psutil.STATUS_STOPPED: ProcessState.STOPPED,
    psutil.STATUS_ZOMBIE: ProcessState.GONE,
    psutil.STATUS_DEAD: ProcessState.GONE,
}
PRIVATE_VARIABLES = (*SECRET_VARIABLES, "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


@dataclass(frozen=True)
class EndTimes:
    """How long a process that shall end is waited for.

    terminate_s, kill_s: seconds from the request to SIGTERM and to SIGKILL. killed_s: seconds after SIGKILL until we go
    on without it: a process inside a call of its driver or disk that cannot be interrupted outlives even that.
    """

    terminate_s: float = 3.0
    kill_s: float = 10.0
    killed_s: float = 5.0


class StageProcess:
    """One running stage process, its log and its client. name: for people."""

    def __init__(
        self, name: str, child: asyncio.subprocess.Process, socket: Path, stage_log: StageLog, times: EndTimes
    ) -> None:
        self.name = name
        self._times = times
        self._child = child
        self._socket = socket
        self._log = stage_log
        self._reading = asyncio.create_task(stage_log.follow(child.stdout))
        self.client = StageClient(str(socket))

    @property
    def pid(self) -> int:
        """The process id."""
        return self._child.pid

    def become(self, name: str, log_path: Path) -> None:
        """A spare is a stage from now on, with that stage's name and log."""
        self.name = name
        self._log.move_to(log_path)

    @property
    def has_ended(self) -> bool:
        """Whether the process is over."""
        return self._child.returncode is not None

    def cpu_s(self) -> float | None:
        """Processor time it has used in all, in seconds; None when it is gone."""
        try:
            used = psutil.Process(self.pid).cpu_times()
        except psutil.Error:
            return None
        return used.user + used.system

    def vitality(self) -> Vitality:
        """What the system says of it now."""
        try:
            child = psutil.Process(self.pid)
            with child.oneshot():
                used, status = child.cpu_times(), child.status()
        except psutil.Error:
            return Vitality(ProcessState.GONE)
        return Vitality(_STATES.get(status, ProcessState.ASLEEP), used.user + used.system)

    async def wait(self) -> str:
        """Wait for the end; returns how it ended, in words with the last lines it wrote."""
        await self._child.wait()
        await asyncio.wait({self._reading}, timeout=LAST_WORDS_S)
        tail = self._log.tail()
        return describe_exit(self._child.returncode or 0) + (f"; it last wrote:\n{tail}" if tail else "")

    async def stop(self) -> None:
        """Ask, then SIGTERM after 3 s, then SIGKILL after 10 s. Returns when the process is gone, or after 15 s."""
        asked_s = asyncio.get_running_loop().time()
        if not self.has_ended:
            with contextlib.suppress(SwarmError, TimeoutError):
                async with asyncio.timeout(self._times.terminate_s):
                    await self.client.stop()
            await self._end_by(asked_s + self._times.terminate_s, signal.SIGTERM)
            await self._end_by(asked_s + self._times.kill_s, signal.SIGKILL)
        await self._wait_by(asked_s + self._times.kill_s + self._times.killed_s)
        await self._clean_up()

    async def kill(self) -> None:
        """End it at once. Returns when the process is gone, or after 5 s."""
        now_s = asyncio.get_running_loop().time()
        await self._end_by(now_s, signal.SIGKILL)
        await self._wait_by(now_s + self._times.killed_s)
        await self._clean_up()

    async def _end_by(self, loop_s: float, otherwise: signal.Signals) -> None:
        await self._wait_by(loop_s)
        if not self.has_ended:
            with contextlib.suppress(ProcessLookupError):
                self._child.send_signal(otherwise)

    async def _wait_by(self, loop_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(loop_s):
                await self._child.wait()

    async def _clean_up(self) -> None:
        await self.client.close()
        self._reading.cancel()
        if self._child.stdin:
            self._child.stdin.close()
        self._log.close()
        self._socket.unlink(missing_ok=True)


class StageHost:
    """Starts stage processes and remembers every one until it is gone.

    stage_command: program and arguments to which "--socket PATH" is added, and "--import-ahead" for a spare: a process
    that has imported already what a load would, of which there is at most one. environ: what children inherit.
    state_dir: where sockets and logs lie; the caller holds its lock.
    """

    def __init__(
        self,
        stage_command: Sequence[str],
        state_dir: Path,
        environ: Mapping[str, str],
        times: EndTimes = EndTimes(),
        tap: OutputTap | None = None,
    ) -> None:
        self._times = times
        self._tap = tap
        self._command = tuple(stage_command)
        self._logs = state_dir / "logs"
        self._environ = {name: text for name, text in environ.items() if name not in PRIVATE_VARIABLES}
        self._run_dir = _private_run_dir(state_dir)
        self._alive: set[StageProcess] = set()
        self._lingering: set[StageProcess] = set()
        self._spare: StageProcess | None = None
        self._coming: asyncio.Task[StageProcess] | None = None  # the spare while it starts
        self._started = 0

    @property
    def run_dir(self) -> Path:
        """The folder of the sockets."""
        return self._run_dir

    @property
    def spare(self) -> StageProcess | None:
        """The process that waits for a load; None while there is none that is ready and lives."""
        return self._spare if self._spare is not None and not self._spare.has_ended else None

    @property
    def spare_ended(self) -> bool:
        """Whether the spare died by itself, and no other took its place yet."""
        return self._spare is not None and self._spare.has_ended

    async def start(self, label: str, may_take_spare: bool = True) -> StageProcess:
        """A process whose socket answers: the spare where there is one, else a new one, within 60 s each.

        A spare that is starting is waited for: a new process beside it would make both slow, and end up behind it.
        label: names its log, for people. Raises StageFailed with how it ended and what it wrote last.
        """
        if may_take_spare and self._coming is not None:
            await asyncio.wait({self._coming}, timeout=START_TIMEOUT_S)
            await asyncio.sleep(0)  # who started it takes it in first
        spare = await self._take_spare() if may_take_spare else None
        if spare is None:
            return await self._start(label, (), START_TIMEOUT_S)
        spare.become(f"{label} (process {spare.pid})", self._log_path(label))
        log.info("the spare becomes a stage process", pid=spare.pid, stage=label)
        return spare

    async def _take_spare(self) -> StageProcess | None:
        """The spare, which is nobody else's then; None when there is none, or it does not answer."""
        spare = self.spare
        if spare is None:
            return None
        self._spare = None
        try:
            async with asyncio.timeout(SPARE_ANSWER_S):
                await spare.client.status()
        except (SwarmError, TimeoutError):
            log.warning("the spare does not answer and is ended", pid=spare.pid)
            await self._discard(spare)
            return None
        except BaseException:
            await asyncio.shield(self._discard(spare))
            raise
        return spare

    async def prepare_spare(self) -> StageProcess:
        """Start a spare and wait until it has imported, at most 300 s. Raises StageFailed. Cancelling it ends it."""
        await self.end_spare()  # what is left of one that died
        self._coming = asyncio.create_task(self._start("spare", ("--import-ahead",), SPARE_START_TIMEOUT_S))
        try:
            spare = self._spare = await self._coming
            return spare
        finally:
            self._coming = None

    async def end_spare(self) -> None:
        """End the spare at once, if there is one: it holds nothing."""
        spare, self._spare = self._spare, None
        if spare is not None:
            await self._discard(spare)

    async def _start(self, label: str, flags: Sequence[str], timeout_s: float) -> StageProcess:
        self._started += 1
        socket = self._run_dir / f"s{self._started}.sock"
        stage_log = StageLog(self._log_path(label), tap=self._tap)
        try:
            child = await asyncio.create_subprocess_exec(
                *self._command,
                *flags,
                "--socket",
                str(socket),
                stdin=asyncio.subprocess.PIPE,  # held open and never written: its end tells the stage that we are gone
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=self._environ,
            )
        except OSError as error:
            raise StageFailed(f"cannot start {self._command[0]}: {error.strerror}") from error
        stage = StageProcess(f"{label} (process {child.pid})", child, socket, stage_log, self._times)
        self._alive.add(stage)
        try:
            await self._wait_until_it_answers(stage, socket, timeout_s)
        except BaseException:
            await asyncio.shield(self._discard(stage))
            raise
        log.info("stage process started", pid=stage.pid, log=str(stage_log.path))
        return stage

    def _log_path(self, label: str) -> Path:
        return self._logs / f"{label}.log"

    async def stop(self, stage: StageProcess) -> None:
        """End one process; see StageProcess.stop."""
        await stage.stop()
        self._part_with(stage)

    async def kill(self, stage: StageProcess) -> None:
        """End one process at once: there is nothing in it to wait for."""
        await self._discard(stage)

    def lingering(self) -> list[str]:
        """Names of processes that were killed and are not gone yet: what they hold is not back."""
        self._lingering = {stage for stage in self._lingering if not stage.has_ended}
        return sorted(stage.name for stage in self._lingering)

    async def close(self) -> None:
        """Kill whatever still runs, within 5 s, and remove the sockets."""
        await asyncio.gather(*(self._discard(stage) for stage in list(self._alive)))
        shutil.rmtree(self._run_dir, ignore_errors=True)

    async def _discard(self, stage: StageProcess) -> None:
        await stage.kill()
        self._part_with(stage)

    def _part_with(self, stage: StageProcess) -> None:
        self._alive.discard(stage)
        if not stage.has_ended:
            log.error("a killed stage process is not gone", stage=stage.name, waited_s=self._times.killed_s)
            self._lingering.add(stage)

    async def _wait_until_it_answers(self, stage: StageProcess, socket: Path, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                while not socket.exists():  # noqa: ASYNC240 - one stat of a local path
                    if stage.has_ended:
                        raise StageFailed(f"the stage process {await stage.wait()}")
                    await asyncio.sleep(SOCKET_POLL_S)
                await stage.client.wait_until_it_answers()
        except TimeoutError:
            raise StageFailed(
                f"the stage process {stage.pid} did not answer on its socket within {timeout_s:g} s"
            ) from None


def describe_exit(returncode: int) -> str:
    """How a process ended: "was ended by SIGKILL" or "exited with code 3"."""
    if returncode >= 0:
        return f"exited with code {returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = f"signal {-returncode}"
    hint = " (often the kernel, out of memory)" if name == "SIGKILL" else ""
    return f"was ended by {name}{hint}"


def _private_run_dir(state_dir: Path) -> Path:
    """A folder only we can enter, with a path short enough for Unix sockets. Raises DiskFull."""
    folder = state_dir.absolute() / "run"
    try:
        if len(str(folder / "s999999.sock")) >= SOCKET_PATH_MAX:
            return Path(tempfile.mkdtemp(prefix="swarm-", dir="/tmp"))
        shutil.rmtree(folder, ignore_errors=True)  # sockets of a killed predecessor; the state lock makes them ours
        folder.mkdir(parents=True, mode=0o700)
        os.chmod(folder, 0o700)  # noqa: PTH101 - whatever the umask
    except OSError as error:
        raise DiskFull(f"cannot make the folder for sockets under {state_dir}: {error.strerror}") from error
    return folder
