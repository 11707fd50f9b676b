"""`python -m swarm_leader.catalog.hub`: fetches a checkpoint from a hub into a folder. The child process of an import.

stdin: one JSON line: repo, revision, target, known_commit, endpoint, token (null: what HF_ENDPOINT and HF_TOKEN say).
stdout: JSON lines {"commit"} once, then {"step", "done", "total"}. If the commit is the known one, nothing is fetched.
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
import urllib.request
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from swarm_core.egress import make_door
from swarm_core.errors import BadRequest, SwarmError
from swarm_core.manifest import CONFIG_BYTES_MAX, CONFIG_NAME, SMALL_FILE_BYTES_MAX
from swarm_core.process_limits import limit_file, limit_memory

from swarm_leader.catalog.config_json import parse_config
from swarm_leader.catalog.egress import guard_sockets
from swarm_leader.catalog.files import read_small
from swarm_leader.catalog.small_files import INDEX_NAME, SMALL_NAMES
from swarm_leader.catalog.steps import EXIT_BAD_INPUT, EXIT_DISK, EXIT_UNAVAILABLE
from swarm_leader.catalog.weight_files import choose_weight_files

_REPORT_EVERY_S = 0.3
_FILES_AT_ONCE = 4
_NO_WAY = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN}
_MEMORY_BYTES_MAX = 2**30  # the client takes 100 MB; an answer that never ends takes all there is
_LISTED_MAX = 10_000
_MARGIN_BYTES = 16 * 2**20  # of the client's own notes beside the files
_WAIT_S = 60.0  # for bytes that do not come, where the client sets no limit
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
    _say({"commit": commit})
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

    small = [name for name in SMALL_NAMES if name in sizes]
    large = [name for name in small if sizes[name] > SMALL_FILE_BYTES_MAX]
    if large:
        raise BadRequest(f"{large[0]} of {repo} has {sizes[large[0]]} bytes, more than {SMALL_FILE_BYTES_MAX}")
    limit_file(SMALL_FILE_BYTES_MAX + _MARGIN_BYTES)
    download(small)
    if CONFIG_NAME in small:
        parse_config(read_small(target / CONFIG_NAME, CONFIG_BYTES_MAX), repo)
    index = read_small(target / INDEX_NAME, SMALL_FILE_BYTES_MAX) if INDEX_NAME in small else None
    weights = [name for name in choose_weight_files(sizes, index) if name in sizes]
    total = sum(sizes[name] for name in (*small, *weights))
    free_bytes = shutil.disk_usage(target).free
    if total > free_bytes:
        raise OSError(28, f"{repo} needs {total} bytes and {target.parent.parent} has {free_bytes} free")
    limit_file(max(sizes[name] for name in (*small, *weights)) + _MARGIN_BYTES)
    with _Reporting(target, total):
        download(weights)


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
