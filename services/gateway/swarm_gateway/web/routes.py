"""The endpoints of the chat page and its files, with what they forbid browsers. Public: they hold nothing of anyone."""

from collections.abc import Mapping

from aiohttp import ETag, web
from silentswarm.core.v1 import access_pb2

from swarm_gateway.endpoints import Endpoint
from swarm_gateway.problems import no_route
from swarm_gateway.web.assets import load_assets
from swarm_gateway.web.page import etag_of, render_page

# Scripts and styles come from this gateway's files only, none from the document, and nothing is loaded from or sent to
# any other host. Trusted Types: where a browser has them, only the sanitiser may make HTML of a string.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types dompurify",
    )
)
# The front adds what every reply carries.
_PAGE = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Content-Type": "text/html; charset=utf-8",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cache-Control": "no-cache",  # kept, but asked about each time: its links change with its files
}
_FOR_EVER = "public, max-age=31536000, immutable"
_ASK_AGAIN = "public, no-cache"


class Pages:
    """Answers with what was read and rendered when it was made; touches no disk afterwards."""

    def __init__(self) -> None:
        self._assets = load_assets()
        self._page = render_page(self._assets)
        self._page_etag = etag_of(self._page)

    async def show(self, request: web.Request, raw_variables: Mapping[str, str]) -> web.Response:
        """The chat page."""
        return _answer(request, self._page, self._page_etag, _PAGE)

    async def file(self, request: web.Request, raw_variables: Mapping[str, str]) -> web.Response:
        """One static file. Raises HttpProblem 404.

        The version in its path names its content, so that it may be kept for ever. Another version's page, from before
        an update or of another gateway, gets what there is.
        """
        asset = self._assets.files.get(raw_variables["file"])
        if asset is None:
            raise no_route(request.method, request.path)
        is_current = raw_variables["version"] == self._assets.version
        caching = {"Cache-Control": _FOR_EVER if is_current else _ASK_AGAIN}
        return _answer(request, asset.body, asset.etag, {"Content-Type": asset.content_type, **caching})


def web_endpoints() -> list[Endpoint]:
    """The page and its files."""
    pages = Pages()
    return [
        Endpoint("GET", "/", pages.show, access_pb2.ACCESS_PUBLIC),
        Endpoint("GET", "/static/{version}/{file=**}", pages.file, access_pb2.ACCESS_PUBLIC),
    ]


def _answer(request: web.Request, body: bytes, etag: str, headers: Mapping[str, str]) -> web.Response:
    """The bytes, or 304 for a browser that has them."""
    known = request.if_none_match or ()
    is_known = any(tag.value in (etag, "*") for tag in known)
    response = web.Response(status=304, headers=headers) if is_known else web.Response(body=body, headers=headers)
    response.etag = ETag(etag)
    return response
