"""The chat page against a real swarm: a real model answers in a real browser, and stop frees the stages."""

import asyncio
import json
import re
import urllib.request
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Page, async_playwright
from transformers import AutoTokenizer

from tests.e2e.conftest import MODEL
from tests.e2e.swarm import Swarm, until
from tests.integration.web.conftest import CHROMIUM_FLAGS, find_chromium

pytestmark = pytest.mark.asyncio(loop_scope="module")
WAIT_MS = 60_000
HEARTBEAT_S = 0.5  # as chat_swarm sets it
TOKENS_AFTER_STOP = 2
LONG = "Tell me a very long story about a lighthouse, with many chapters."


@pytest_asyncio.fixture(loop_scope="module")
async def page(chat_swarm: Swarm) -> AsyncIterator[Page]:
    """The swarm's page, which must fail nowhere and ask nobody else."""
    foreign: list[str] = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium(), args=CHROMIUM_FLAGS)
        page = await browser.new_page()
        page.set_default_timeout(WAIT_MS)
        page.on("request", lambda request: foreign.append(request.url))
        page.on("pageerror", lambda error: foreign.append(str(error)))
        await page.goto(chat_swarm.http + "/")
        await page.locator("#model:enabled").wait_for()
        yield page
        await browser.close()
    assert [url for url in foreign if not url.startswith(chat_swarm.http)] == []


def ask_json(swarm: Swarm, path: str, body: dict | None = None) -> dict:
    """One JSON answer of the gateway."""
    asked = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(swarm.http + path, asked, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


async def positions_at_rest(swarm: Swarm) -> list[int]:
    """Positions every stage has computed, once none holds a session and two heartbeats say the same."""

    async def read() -> list[int] | None:
        status = await asyncio.to_thread(ask_json, swarm, f"/api/v1/models/{MODEL}/status")
        live = [stage["live"] for stage in status["stages"]]
        is_idle = not any(stage["sessions"] or stage["waiting"] for stage in live)
        return [int(stage["positions"]) for stage in live] if is_idle else None

    async def settled() -> list[int] | None:
        first = await read()
        await asyncio.sleep(2 * HEARTBEAT_S)
        return first if first is not None and first == await read() else None

    return await until(settled, 20, "stages at rest")


async def test_a_question_is_answered_by_two_fellows_that_are_named(page):
    await page.get_by_role("button", name="Settings").click()
    await page.get_by_label("Temperature").fill("0")
    await page.get_by_label("Longest reply").fill("30")
    await page.keyboard.press("Escape")
    await page.get_by_label("Message").fill("What is the capital of France?")
    await page.keyboard.press("Enter")
    await page.locator(".figures").wait_for()
    figures = await page.locator(".figures").inner_text()

    assert "Paris" in await page.locator(".reply .text").inner_text()
    assert "fellow-1 → fellow-2" in figures and "tokens/s" in figures and "first token" in figures


async def test_stop_makes_every_stage_idle_within_two_tokens(page, chat_swarm, reference_folder):
    """open-webui#456, #1567: stop in the page left the machines computing."""
    once = {"model": MODEL, "messages": [{"role": "user", "content": LONG}], "max_tokens": 1}
    prompt = (await asyncio.to_thread(ask_json, chat_swarm, "/v1/chat/completions", once))["usage"]["prompt_tokens"]
    before = await positions_at_rest(chat_swarm)
    await page.get_by_label("Message").fill(LONG)
    await page.keyboard.press("Enter")
    await page.locator(".reply .text", has_text=re.compile(r"(\S+\s+){8}")).wait_for()
    await page.get_by_role("button", name="Stop").click()
    await page.locator(".reply .note", has_text="Stopped.").wait_for()
    shown = await page.evaluate("JSON.parse(localStorage['silentswarm.conversation']).messages.at(-1).content")
    after = await positions_at_rest(chat_swarm)

    shown_tokens = len(AutoTokenizer.from_pretrained(reference_folder).encode(shown))
    computed = [end - begin - prompt for begin, end in zip(before, after, strict=True)]
    assert all(tokens <= shown_tokens + TOKENS_AFTER_STOP for tokens in computed), (computed, shown_tokens)
    assert shown_tokens < 1000, "it stopped early in the story"
