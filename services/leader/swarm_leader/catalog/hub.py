"""`python -m swarm_leader.catalog.hub`: fetches a checkpoint from a hub into a folder. The child process of an import.

stdin: one JSON line: repo, revision, target, known_commit, by_reference, endpoint, token (null: what HF_ENDPOINT and
HF_TOKEN say).
stdout: JSON lines {"commit", "endpoint"} once, then {"step", "done", "total"}. If the commit is the known one, nothing
is fetched. By reference, weights are read once and their hashes left in the folder, not they themselves.
Exit codes: 0, 2 bad request, 3 disk full, 4 the hub does not answer; with one line on stderr.

What the hub answers is as hostile as a model: it decides neither where we connect (egress.py) nor how much memory or
disk we take, and its bytes come over HTTP alone. docs/decisions/0008-what-an-import-may-reach.md.
"""

import errno
import json
import os
import re
import shutil
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from swarm_core.egress import make_door
from swarm_core.errors import BadRequest, SwarmError, Unavailable
from swarm_core.manifest import CONFIG_BYTES_MAX, CONFIG_NAME, SMALL_FILE_BYTES_MAX
from swarm_core.manifest_parts import is_endpoint
from swarm_core.process_limits import limit_file, limit_memory
from swarm_core.servable_parts import ADAPTER_CONFIG_NAME

from swarm_leader.catalog.egress import guard_sockets
from swarm_leader.catalog.files import read_small
from swarm_leader.catalog.hub_weights import HubReader, RemoteFile, read_weights
from swarm_leader.catalog.sources.adapter import ADAPTER_WEIGHTS_NAME, is_adapter
from swarm_leader.catalog.sources.config_json import parse_config
from swarm_leader.catalog.sources.lora_config import parse_lora_config
from swarm_leader.catalog.sources.small_files import INDEX_NAME, SMALL_NAMES
from swarm_leader.catalog.sources.weight_files import PICKLED, choose_weight_files
from swarm_leader.catalog.steps import EXIT_BAD_INPUT, EXIT_DISK, EXIT_UNAVAILABLE

_REPORT_EVERY_S = 0.3
_FILES_AT_ONCE = 4
_NO_WAY = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN}
_MEMORY_BYTES_MAX = 2**30  # the client takes 100 MB; an answer that never ends takes all there is
_LISTED_MAX = 10_000
_MARGIN_BYTES = 16 * 2**20  # of the client's own notes beside the files
_WAIT_S = 60.0  # for bytes that do not come, where the client sets no limit
ADAPTER_NAMES = (ADAPTER_CONFIG_NAME,)
_COMMIT = re.compile(r"[0-9a-f]{40,64}", re.ASCII)


def main() -> int:
    """Serve the one request on stdin."""
    request = json.loads(sys.stdin.readline())
    limit_memory(_MEMORY_BYTES_MAX)
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

    repo, revision = request["repo"], request["revision"]
    named = f"{repo} at revision {revision}" if revision else repo
    try:
        fetch(request)
        return 0
    except GatedRepoError:
        return _fail(EXIT_BAD_INPUT, f"{repo} is gated: accept its terms on the hub and set HF_TOKEN for the leader")
    except RevisionNotFoundError:
        return _fail(EXIT_BAD_INPUT, f"{repo} has no revision {revision}")
    except RepositoryNotFoundError:
        return _fail(EXIT_BAD_INPUT, f"the hub has no model {named}, or it is private: set HF_TOKEN for the leader")
    except Unavailable as error:
        return _fail(EXIT_UNAVAILABLE, error.message)
    except SwarmError as error:
        return _fail(EXIT_BAD_INPUT, error.message)
    except HfHubHTTPError as error:
        return _fail(EXIT_UNAVAILABLE, f"the hub refused {named}: {error}")
    except MemoryError:
        return _fail(EXIT_BAD_INPUT, f"the hub's answer about {named} is larger than any model's")
    except Exception as error:
        return _fail_unexpected(error, request["endpoint"], named)


def _fail_unexpected(error: Exception, endpoint: str | None, named: str) -> int:
    """The exit code and words for what went wrong outside the hub's own refusals: the network, the disk, the rest."""
    from huggingface_hub import constants

    why = _unreachable(error)
    if why:
        host = urlsplit(endpoint or constants.ENDPOINT).netloc
        words = f"the hub at {host} cannot be reached from the leader's machine ({why})"
        return _fail(EXIT_UNAVAILABLE, f"{words}; a folder or a .gguf file works without it")
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        return _fail(EXIT_BAD_INPUT, f"the hub sends more of {named} than it promised")
    if isinstance(error, OSError):
        is_disk = error.errno in (28, 122)
        return _fail(EXIT_DISK if is_disk else EXIT_UNAVAILABLE, f"fetching {named} failed: {error}")
    return _fail(EXIT_UNAVAILABLE, f"fetching {named} failed: {type(error).__name__}: {error}")


def _unreachable(error: BaseException | None) -> str:
    """Why no connection came about, in the system's words; empty when that is not what went wrong.

    The hub client wraps the system's error in its own, and those of its HTTP library, which change with versions.
    """
    while error is not None:
        is_system = isinstance(error, (ConnectionError, socket.gaierror, TimeoutError))
        if is_system or (isinstance(error, OSError) and error.errno in _NO_WAY):
            return getattr(error, "strerror", None) or str(error) or "no answer in time"
        error = error.__cause__ or error.__context__
    return ""


def fetch(request: dict[str, Any]) -> None:
    """Resolve the revision, look at the config first, then fetch the weights it needs and nothing else.

    Raises SwarmError for what is not served or lies about itself, and whatever the hub's client raises.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    _guard(request["endpoint"])
    api = HfApi(endpoint=request["endpoint"], token=request["token"])
    repo, target = request["repo"], Path(request["target"])
    commit = api.model_info(repo, revision=request["revision"] or None, timeout=30).sha
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        raise BadRequest(f"the hub names {str(commit)[:100]!r} as the commit of {repo}")
    _say({"commit": commit, "endpoint": _other_endpoint(api.endpoint)})
    if commit == request["known_commit"]:
        return
    listing = list(islice(api.list_repo_tree(repo, revision=commit, recursive=False), _LISTED_MAX + 1))
    sizes = {entry.path: entry.size for entry in listing if isinstance(entry, RepoFile)}
    if len(listing) > _LISTED_MAX or not all(isinstance(size, int) and size >= 0 for size in sizes.values()):
        raise BadRequest(f"the hub's list of the files of {repo} is no checkpoint's")

    def download(names: list[str]) -> None:
        api.snapshot_download(
            repo, revision=commit, local_dir=target, allow_patterns=names, max_workers=_FILES_AT_ONCE, etag_timeout=30
        )

    wanted = ADAPTER_NAMES if is_adapter(set(sizes)) else SMALL_NAMES
    small = [name for name in wanted if name in sizes]
    large = [name for name in small if sizes[name] > SMALL_FILE_BYTES_MAX]
    if large:
        raise BadRequest(f"{large[0]} of {repo} has {sizes[large[0]]} bytes, more than {SMALL_FILE_BYTES_MAX}")
    limit_file(SMALL_FILE_BYTES_MAX + _MARGIN_BYTES)
    download(small)
    weights = _weights_of(small, sizes, target, repo)
    if request.get("by_reference"):
        if wanted is ADAPTER_NAMES:
            raise BadRequest(f"{repo} is a LoRA adapter; those are small, and imported whole")
        if not is_endpoint(api.endpoint):
            raise BadRequest(
                f"fellows could not fetch from HF_ENDPOINT={api.endpoint!r}: a host and path alone, please"
            )
        files = [entry for entry in listing if isinstance(entry, RepoFile)]
        return _read_weights(api, repo, commit, files, target)
    total = sum(sizes[name] for name in (*small, *weights))
    free_bytes = shutil.disk_usage(target).free
    if total > free_bytes:
        raise OSError(28, f"{repo} needs {total} bytes and {target.parent.parent} has {free_bytes} free")
    limit_file(max(sizes[name] for name in (*small, *weights)) + _MARGIN_BYTES)
    with _Reporting(target, total):
        download(weights)


def _weights_of(small: list[str], sizes: dict[str, int], target: Path, repo: str) -> list[str]:
    """The weight files to fetch, once the small ones have come and can be served."""
    if ADAPTER_CONFIG_NAME in small and CONFIG_NAME not in small:
        parse_lora_config(read_small(target / ADAPTER_CONFIG_NAME, CONFIG_BYTES_MAX))
        pickled = sorted(name for name in sizes if name.lower().endswith(PICKLED))
        if ADAPTER_WEIGHTS_NAME not in sizes and pickled:
            raise BadRequest(f"the weights of {repo} are pickled ({pickled[0]}); reading those can run code")
        return [ADAPTER_WEIGHTS_NAME] if ADAPTER_WEIGHTS_NAME in sizes else []
    if CONFIG_NAME in small:
        parse_config(read_small(target / CONFIG_NAME, CONFIG_BYTES_MAX), repo)
    index = read_small(target / INDEX_NAME, SMALL_FILE_BYTES_MAX) if INDEX_NAME in small else None
    return [name for name in choose_weight_files(sizes, index) if name in sizes]


def _read_weights(api: Any, repo: str, commit: str, listed: Iterable[Any], target: Path) -> None:
    """Read every weight file once, and leave what was read of them in `target`."""
    from huggingface_hub import get_session, hf_hub_url
    from huggingface_hub.utils import build_hf_headers

    files = {
        entry.path: RemoteFile(
            entry.path,
            hf_hub_url(repo, entry.path, revision=commit, endpoint=api.endpoint),
            entry.size,
            str(entry.lfs.sha256) if entry.lfs is not None else "",
        )
        for entry in listed
    }
    telling = _Telling()
    read_weights(HubReader(get_session(), build_hf_headers(token=api.token)), files, target, telling.report)


class _Telling:
    """Tells where a step is: how it began, its end, and seldom in between."""

    def __init__(self) -> None:
        self._told_s = 0.0

    def report(self, step: str, done: int, total: int) -> None:
        """Say where a step is."""
        now_s = time.monotonic()
        if now_s - self._told_s > _REPORT_EVERY_S or done == total:
            self._told_s = now_s
            _say({"step": step, "done": done, "total": total})


def _other_endpoint(endpoint: str) -> str:
    """Which hub, when it is not the hub client's own."""
    from huggingface_hub import constants

    default = getattr(constants, "_HF_DEFAULT_ENDPOINT", "https://huggingface.co")
    return "" if endpoint == default else endpoint


def _guard(endpoint: str | None) -> None:
    """Make this process unable to connect where a hub could send it.

    A refusal ends the process on the spot: the client would try again for half a minute, in several threads.
    """
    import huggingface_hub
    from huggingface_hub import constants

    constants.HF_HUB_DISABLE_XET = True  # its connections are made by compiled code, past every check of ours
    proxies = urllib.request.getproxies()
    proxies.pop("no", None)
    try:
        door = make_door(endpoint or constants.ENDPOINT, proxies.values())
    except ValueError as error:
        raise BadRequest(str(error)) from error

    def refuse(why: str) -> NoReturn:
        _fail(EXIT_BAD_INPUT, f"the hub leads to a place nothing is fetched from: {why}")
        os._exit(EXIT_BAD_INPUT)

    def check_url(request: Any) -> None:
        why = door.why_url_refused(str(request.url))
        if why:
            refuse(why)

    usual = huggingface_hub.get_session()
    hooks = usual.event_hooks

    def make_client() -> Any:
        return type(usual)(
            event_hooks={**hooks, "request": [*hooks.get("request", []), check_url]},
            follow_redirects=True,
            timeout=_WAIT_S,
        )

    huggingface_hub.set_client_factory(make_client)
    guard_sockets(door, refuse)


class _Reporting:
    """Tells how many bytes lie in a folder while something fills it; the hub client's own bars change with versions.

    Ends the process when there are more than the hub promised.
    """

    def __init__(self, folder: Path, total: int) -> None:
        self._folder = folder
        self._total = total
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._report, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _report(self) -> None:
        told = -1
        while not self._end.wait(_REPORT_EVERY_S):
            lying = sum(_size(path) for path in self._folder.rglob("*"))
            if lying > self._total + _MARGIN_BYTES:
                _fail(EXIT_BAD_INPUT, f"the hub sends more than the {self._total} bytes it promised")
                os._exit(EXIT_BAD_INPUT)
            done = min(lying, self._total)
            if done != told:  # silence tells the parent that nothing moves
                _say({"step": "download", "done": done, "total": self._total})
                told = done
        _say({"step": "download", "done": self._total, "total": self._total})


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:  # renamed while we looked
        return 0


def _say(document: dict[str, Any]) -> None:
    print(json.dumps(document), flush=True)


def _fail(code: int, words: str) -> int:
    print(" ".join(words.split()), file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
