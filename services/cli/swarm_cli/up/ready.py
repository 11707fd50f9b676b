"""Waiting until every process answers, and saying so in a file. Every wait has a deadline."""

import asyncio
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

import psutil
from silentswarm.leader.v1 import fleet_pb2, serving_pb2, status_pb2
from swarm_core.errors import DeadlinePassed, SwarmError

from swarm_cli.leader import Leader

START_S = 90.0  # a cold start on a slow disk imports for seconds; three processes do it on two cores at once
POLL_S = 0.1
PERMANENT_S = 5.0  # a full disk or a database that cannot be written seldom heals by itself within a start
_FIXES = {
    "disk": "free some, give --data-dir a folder on another disk, or lower SWARM_MIN_FREE_DISK_GB",
    "database": "--data-dir must be writable; SWARM_DATABASE_URL may name another database",
}
ASK_S = 5.0


async def until(claim: Callable[[], Awaitable[str]], who: str, within_s: float = START_S) -> None:
    """Ask again until `claim` answers nothing missing (""). Raises DeadlinePassed with its last answer."""
    deadline_s = time.monotonic() + within_s
    while missing := await claim():
        if time.monotonic() > deadline_s:
            raise DeadlinePassed(f"{who} is not ready after {within_s:.0f} s: {missing}")
        await asyncio.sleep(POLL_S)


async def until_leader_ready(leader: Leader, tell: Callable[[str], None], within_s: float = START_S) -> None:
    """Ask until the leader takes work; a reason that only a person can remove is told when it first appears.

    Raises DeadlinePassed with the last answer, or SwarmError once such a reason has lasted PERMANENT_S.
    """
    deadline_s = time.monotonic() + within_s
    first_seen_s: dict[str, float] = {}
    while missing := await _leader_lacks(leader):
        now_s = time.monotonic()
        lasting = {kind: reason for kind in _FIXES for reason in missing if reason.startswith(kind)}
        for kind in lasting.keys() - first_seen_s.keys():
            tell(f"the leader takes no work: {lasting[kind]}")
        first_seen_s = {kind: first_seen_s.get(kind, now_s) for kind in lasting}
        for kind, since_s in first_seen_s.items():
            if now_s - since_s > PERMANENT_S:
                raise SwarmError(f"the leader takes no work: {lasting[kind]}\n{_FIXES[kind]}")
        if now_s > deadline_s:
            raise DeadlinePassed(f"the leader is not ready after {within_s:.0f} s: {'; '.join(missing)}")
        await asyncio.sleep(POLL_S)


async def _leader_lacks(leader: Leader) -> list[str]:
    """Why the leader takes no work yet; empty when it does."""
    try:
        answer = await leader.ask(leader.status.GetReady, status_pb2.GetReadyRequest(), ASK_S)
    except SwarmError as error:
        return [error.message]
    return [] if answer.ready else list(answer.reasons) or ["it does not say why"]


async def gateway_lacks(base_url: str) -> str:
    """Why the gateway does not answer yet; "" when it does."""
    return await asyncio.to_thread(_get_failure, f"{base_url}/healthz")


async def fellows_lack(leader: Leader, names: Iterable[str]) -> str:
    """Fellows that are not connected yet, in words; "" when all are."""
    answer = await leader.ask(leader.fleet.ListFellows, fleet_pb2.ListFellowsRequest(), ASK_S)
    connected = {fellow.name for fellow in answer.fellows if fellow.state == "connected"}
    missing = [name for name in names if name not in connected]
    return f"not connected: {', '.join(missing)}" if missing else ""


def stage_pids(fellow_pids: dict[str, int], status: serving_pb2.ModelStatus) -> dict[str, int]:
    """stage-I@FELLOW -> process id. A fellow with several stages started them in ring order."""
    pids: dict[str, int] = {}
    for name, pid in fellow_pids.items():
        held = sorted(stage.stage_index for stage in status.stages if stage.fellow_name == name)
        pids |= {f"stage-{index}@{name}": found for index, found in zip(held, _stage_children(pid), strict=False)}
    return pids


def current_pids(named: Mapping[str, int], children: Mapping[str, int]) -> dict[str, int]:
    """The processes that live: children as they are now, and the stages among those named before."""
    stages = {name: pid for name, pid in named.items() if "@" in name and psutil.pid_exists(pid)}
    return {**children, **stages}


def write_document(path: Path, document: object) -> None:
    """JSON, the whole document or nothing: a reader never sees a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_text(json.dumps(document, indent=2) + "\n")
    unfinished.replace(path)


def _stage_children(fellow_pid: int) -> list[int]:
    """Stage processes below a fellow, oldest first."""
    try:
        children = psutil.Process(fellow_pid).children(recursive=True)
        stages = [child for child in children if "swarm_stage" in child.cmdline()]
        return [child.pid for child in sorted(stages, key=lambda child: child.create_time())]
    except psutil.NoSuchProcess:
        return []


def _get_failure(url: str) -> str:
    """Why a GET does not answer 200; "" when it does. Never through a proxy: the other end is this machine."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=ASK_S) as answer:
            return "" if answer.status == 200 else f"{url} answers {answer.status}"
    except urllib.error.HTTPError as error:
        return f"{url} answers {error.code}"
    except (OSError, urllib.error.URLError) as error:
        return f"{url}: {getattr(error, 'reason', error)}"
