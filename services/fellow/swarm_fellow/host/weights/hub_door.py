"""HTTP to model hubs, to where swarm_core.egress lets it: redirects are followed by hand. Reads no body."""

import asyncio
import errno
import socket
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp
from swarm_core.egress import Door, make_door
from swarm_core.errors import LoadFailed, Unavailable

HUB_ENDPOINT = "https://huggingface.co"
CONNECT_TIMEOUT_S = 15.0
READ_TIMEOUT_S = 30.0
REDIRECTS_MAX = 5
_REDIRECTS = {301, 302, 303, 307, 308}
_BUFFER_BYTES = 2**16  # up to twice as much is lost where a connection breaks, and fetched again


@dataclass(frozen=True)
class HubAccess:
    """What the operator of this machine says of hubs.

    endpoint: asked instead of any other; "" is the public hub, or what a model names. token: sent to that endpoint,
    else to the public hub, and nowhere else. proxies: scheme -> URL, as the environment has them; "no" names hosts.
    """

    endpoint: str = ""
    token: str = ""
    proxies: Mapping[str, str] = field(default_factory=dict)
    read_timeout_s: float = READ_TIMEOUT_S

    def endpoint_for(self, named: str) -> str:
        """Where to ask for a model whose manifest names this endpoint."""
        return (self.endpoint or named or HUB_ENDPOINT).rstrip("/")

    def knows(self, endpoint: str) -> bool:
        """Whether the operator chose it, if only by leaving the public one: it may be inside, and has the token."""
        return endpoint == (self.endpoint or HUB_ENDPOINT).rstrip("/")


def proxies_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Scheme -> proxy, from variables such as https_proxy, in either case; "no" is a list of hosts."""
    named = {name.lower(): text for name, text in environ.items() if name.lower().endswith("_proxy") and text}
    return {name.removesuffix("_proxy"): text for name, text in named.items()}


class HubDoor:
    """Connections to one endpoint. Belongs to one event loop."""

    def __init__(self, access: HubAccess, endpoint: str) -> None:
        self._access = access
        self._endpoint = endpoint
        self._rules: Door | None = None
        self._session: aiohttp.ClientSession | None = None
        self._opening = asyncio.Lock()

    async def close(self) -> None:
        """Hang up."""
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def get(self, path: str, headers: Mapping[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer to GET endpoint/path, at the end of its redirects, its body unread.

        Raises Unavailable when it cannot be reached or stalls, LoadFailed when it leads where nothing is fetched from.
        """
        url = f"{self._endpoint}/{path}"
        try:
            session, rules = await self._open()
            for _ in range(REDIRECTS_MAX + 1):
                self._check(url, rules)
                own = self._headers_for(url)
                async with session.get(
                    url, headers={**headers, **own}, proxy=self._proxy_for(url), allow_redirects=False
                ) as response:
                    if response.status not in _REDIRECTS:
                        yield response
                        return
                    url = urljoin(url, response.headers.get("Location", ""))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            self._rules = None  # its name may stand for another address now
            why = str(error) or "no answer in time"
            raise Unavailable(f"the hub at {self._host(url)} cannot be read: {why[:300]}") from error
        raise LoadFailed(f"the hub at {self._host(self._endpoint)} redirects more than {REDIRECTS_MAX} times")

    def _check(self, url: str, rules: Door) -> None:
        why = rules.why_url_refused(url)
        if not why and not url.startswith("https:") and not self._access.knows(self._endpoint):
            why = f"{self._host(url)} is asked without TLS; where it is meant, set HF_ENDPOINT on this machine"
        if why:
            raise LoadFailed(f"the hub leads to a place nothing is fetched from: {why}")

    def _headers_for(self, url: str) -> dict[str, str]:
        """The token goes to the hub itself, not to where it redirects."""
        parts, own = urlsplit(url), urlsplit(self._endpoint)
        is_hub = (parts.scheme, parts.netloc) == (own.scheme, own.netloc)
        if self._access.token and is_hub and self._access.knows(self._endpoint):
            return {"Authorization": f"Bearer {self._access.token}"}
        return {}

    def _proxy_for(self, url: str) -> str | None:
        parts = urlsplit(url)
        proxies = dict(self._access.proxies)
        if urllib.request.proxy_bypass_environment(parts.hostname or "", proxies):
            return None
        return proxies.get(parts.scheme) or proxies.get("all")

    async def _open(self) -> tuple[aiohttp.ClientSession, Door]:
        async with self._opening:
            if self._rules is None:
                self._rules = await asyncio.to_thread(self._make_rules)
            if self._session is None:
                self._session = aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(socket_factory=self._make_socket, use_dns_cache=False),
                    timeout=aiohttp.ClientTimeout(
                        total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=self._access.read_timeout_s
                    ),
                    cookie_jar=aiohttp.DummyCookieJar(),
                    auto_decompress=False,
                    read_bufsize=_BUFFER_BYTES,
                )
            return self._session, self._rules

    def _make_rules(self) -> Door:
        """A model's word opens no door that the operator did not: its endpoint may not be inside."""
        proxies = [url for scheme, url in self._access.proxies.items() if scheme != "no"]
        if self._access.knows(self._endpoint):
            return make_door(self._endpoint, proxies)
        inside = [make_door(url if "://" in url else f"http://{url}", ()).own for url in proxies]
        return replace(make_door(self._endpoint, (), lambda host, port: ()), own=frozenset().union(*inside))

    def _make_socket(self, address: tuple[Any, ...]) -> socket.socket:
        """Of every connection, with the address that is about to be dialled."""
        family, kind, protocol, _, place = address
        why = self._rules.why_address_refused(place) if self._rules else "no rules stand"
        if why:
            raise PermissionError(errno.EACCES, f"{why}; where it is meant, set HF_ENDPOINT on this machine")
        made = socket.socket(family, kind, protocol)
        made.setblocking(False)
        return made

    @staticmethod
    def _host(url: str) -> str:
        return urlsplit(url).netloc[:200]
