"""The chat page and its files as HTTP serves them; no browser."""

import hashlib
import re
from collections.abc import AsyncIterator
from importlib.resources import files

import aiohttp
import pytest
from aiohttp import web
from silentswarm.core.v1 import access_pb2
from swarm_gateway.endpoints import endpoint_table
from swarm_gateway.problems import HttpProblem, error_response, no_route
from swarm_gateway.web.assets import load_assets
from swarm_gateway.web.routes import CONTENT_SECURITY_POLICY, web_endpoints

STATIC = files("swarm_gateway.web") / "static"


class Pages:
    """The endpoints on a port, without the front."""

    def __init__(self, client: aiohttp.ClientSession, url: str) -> None:
        self._client = client
        self._url = url

    async def get(self, path: str, **headers: str) -> tuple[int, str, aiohttp.typedefs.LooseHeaders]:
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        async with self._client.get(self._url + path, headers=named) as response:
            return response.status, await response.text(), response.headers


@pytest.fixture
async def pages() -> AsyncIterator[Pages]:
    table = endpoint_table(web_endpoints())

    async def answer(request: web.Request) -> web.StreamResponse:
        found = table.find("GET", request.rel_url.raw_path)
        try:
            if found is None:
                raise no_route("GET", request.path)
            return await found.target.handler(request, found.raw_variables)
        except HttpProblem as error:
            return error_response(error.problem)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with aiohttp.ClientSession() as client:
        yield Pages(client, f"http://127.0.0.1:{runner.addresses[0][1]}")
    await runner.cleanup()


def test_the_page_and_its_files_are_public_and_nothing_else_is():
    assert {(e.http_method, e.path, e.access) for e in web_endpoints()} == {
        ("GET", "/", access_pb2.ACCESS_PUBLIC),
        ("GET", "/static/{version}/{file=**}", access_pb2.ACCESS_PUBLIC),
    }


async def test_the_page_allows_only_files_of_this_gateway(pages):
    status, text, headers = await pages.get("/")

    assert status == 200 and text.startswith("<!doctype html>")
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    policy = headers["Content-Security-Policy"]
    assert policy == CONTENT_SECURITY_POLICY
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy and "*" not in policy and "http" not in policy and "data:" not in policy
    assert "Set-Cookie" not in headers


async def test_the_page_holds_no_inline_script_no_inline_style_and_no_foreign_address(pages):
    _, text, _ = await pages.get("/")

    assert re.findall(r"<script(?![^>]*\bsrc=)", text) == []
    assert re.findall(r"<style|\sstyle=|\son[a-z]+=", text) == []
    assert re.findall(r"(?:src|href|action)=\"(?:https?:)?//", text) == []


async def test_every_file_the_page_links_to_is_there_with_its_type_and_may_be_kept_for_ever(pages):
    _, text, _ = await pages.get("/")
    links = re.findall(r"(?:src|href)=\"(static/[^\"]+)\"", text)

    assert any(link.endswith("main.js") for link in links) and any(link.endswith("chat.css") for link in links)
    for link in links:
        status, _, headers = await pages.get(f"/{link}")
        assert status == 200, link
        kinds = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8", "svg": "image/svg+xml"}
        assert headers["Content-Type"] == kinds[link.rpartition(".")[2]]
        assert headers["Cache-Control"] == "public, max-age=31536000, immutable"


async def test_a_browser_that_has_the_bytes_gets_none(pages):
    _, _, headers = await pages.get("/")
    status, text, again = await pages.get("/", If_None_Match=headers["ETag"])

    assert (status, text) == (304, "")
    assert again["ETag"] == headers["ETag"] and again["Cache-Control"] == "no-cache"
    assert again["Content-Security-Policy"] == headers["Content-Security-Policy"]


async def test_a_page_from_before_an_update_gets_the_files_there_are_and_asks_again(pages):
    status, text, headers = await pages.get("/static/0123456789abcdef/js/main.js")

    assert status == 200 and text == (STATIC / "js" / "main.js").read_text()
    assert headers["Cache-Control"] == "public, no-cache" and headers["ETag"]


@pytest.mark.parametrize(
    "path", ["js/none.js", "..%2f..%2froutes.py", "%2e%2e/routes.py", "js", "templates/chat.html", "js/main.js%00"]
)
async def test_what_is_no_static_file_is_a_404(pages, path):
    status, text, _ = await pages.get(f"/static/{load_assets().version}/{path}")

    assert status == 404 and '"error"' in text


def test_every_module_imports_only_files_that_are_there():
    assets = load_assets()
    for path, asset in assets.files.items():
        for imported in re.findall(r"(?:from|import) \"(\.[^\"]+)\"", asset.body.decode()):
            parts = path.split("/")[:-1]
            for piece in imported.split("/"):
                parts = parts[:-1] if piece == ".." else parts if piece == "." else [*parts, piece]
            assert "/".join(parts) in assets.files, f"{path} imports {imported}"


def test_no_own_module_turns_text_into_html_or_code():
    """Text nodes only; the one place that makes HTML hands it to the sanitiser."""
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|srcdoc"
        r"|document\.cookie|setAttribute\(\"(?:style|on)"
    )
    for path in (STATIC / "js").iterdir():
        assert forbidden.findall(path.read_text()) == [], path.name


def test_vendored_libraries_are_the_published_bytes():
    readme = (STATIC / "vendor" / "README.md").read_text()
    listed = dict(re.findall(r"^\| (\S+\.js) \|.*\| ([0-9a-f]{64}) \|$", readme, re.MULTILINE))
    there = {
        entry.name: hashlib.sha256(entry.read_bytes()).hexdigest()
        for entry in (STATIC / "vendor").iterdir()
        if entry.name.endswith(".js")
    }

    assert listed == there and len(there) == 2
