"""The chat page in a real browser: headless Chromium before the real gateway, which stands before a scripted leader.

One browser serves a module, whose tests share its event loop; every test has a context, a gateway and a leader of its
own.
"""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, async_playwright
from swarm_core.clock import SystemClock
from swarm_gateway.__main__ import listen, make_runner
from swarm_gateway.app import make_app
from swarm_gateway.leader import Leader
from swarm_rpc.channel import dial

from tests.integration.gateway.conftest import CONFIG
from tests.integration.gateway.scripted_leader import start_leader
from tests.integration.web.page_leader import PageLeader

CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WAIT_MS = 20_000  # longest a test waits for something to appear


@dataclass
class Chat:
    """The page, what it asked for, and what stands behind it. faults: what it must not do, and did."""

    page: Page
    context: BrowserContext
    leader: PageLeader
    url: str
    server: Any
    port: int
    requests: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    async def ask(self, text: str) -> None:
        """Type a message and send it, once there is a model to send it to."""
        await self.page.locator("#model:enabled").wait_for()
        await self.page.get_by_label("Message").fill(text)
        await self.page.keyboard.press("Enter")

    async def reply(self, text: str) -> None:
        """Wait until the last reply shows this text."""
        await self.page.locator(".reply .text", has_text=text).last.wait_for()

    async def standing(self, text: str) -> None:
        """Wait until the reply that is waited for says this."""
        await self.page.locator(".standing", has_text=text).wait_for()

    async def ended(self) -> None:
        """Wait until no reply runs."""
        await self.page.locator("#stop").wait_for(state="hidden")


def find_chromium() -> str:
    """Chromium's path. Skips where there is none, but never on a CI machine."""
    path = shutil.which("chromium")
    if path is None:
        words = "Chromium is not installed (Debian's package is chromium)"
        pytest.fail(words) if os.environ.get("CI") == "true" else pytest.skip(words)
    return path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """One Chromium."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium(), args=CHROMIUM_FLAGS)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="module")
async def open_chat(browser: Browser):
    """Open the page before a leader of the test's own; every page ends with the test, and must have failed nowhere."""
    opened: list[Chat] = []
    async with AsyncExitStack() as stack:

        async def open_page(leader: PageLeader, **options: Any) -> Chat:
            server, port = await start_leader(leader)
            stack.push_async_callback(server.stop, 0)
            url = await stack.enter_async_context(_gateway(port))
            context = await browser.new_context(**options)
            context.set_default_timeout(WAIT_MS)
            chat = Chat(await context.new_page(), context, leader, url, server, port)
            opened.append(chat)
            _watch(chat)
            await chat.page.goto(f"{url}/")
            return chat

        yield open_page
        for chat in opened:
            await chat.context.close()
    assert [fault for chat in opened for fault in chat.faults] == []


@pytest.fixture
def leader() -> PageLeader:
    """A leader with a model on two fellows."""
    return PageLeader()


@pytest_asyncio.fixture(loop_scope="module")
async def chat(open_chat, leader: PageLeader) -> Chat:
    """The page, on a desktop."""
    return await open_chat(leader)


@asynccontextmanager
async def _gateway(leader_port: int) -> AsyncIterator[str]:
    """A gateway before the leader on this port; its URL."""
    config = replace(CONFIG, leader=f"127.0.0.1:{leader_port}", keep_alive_s=0.2)
    runner = make_runner(make_app(config, Leader(dial(config.leader), config.leader), SystemClock(), "0.0.0"), config)
    await runner.setup()
    try:
        yield f"http://127.0.0.1:{await listen(runner, config)}"
    finally:
        await runner.cleanup()


def _watch(chat: Chat) -> None:
    chat.page.on("request", lambda request: chat.requests.append(request.url))
    chat.page.on("pageerror", lambda error: chat.faults.append(str(error)))
    chat.page.on("dialog", lambda dialog: chat.faults.append(f"dialog: {dialog.message}"))
    chat.page.on("console", lambda line: _note_console(chat, line))


def _note_console(chat: Chat, line: Any) -> None:
    """Failures of the page itself. That a request was refused is a test's own doing."""
    if line.type == "error" and "Failed to load resource" not in line.text:
        chat.faults.append(line.text)
