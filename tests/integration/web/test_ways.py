"""The ways people use the page: by keyboard alone, on a phone, in the dark, without motion, and looking at figures."""

import asyncio

import grpc
import pytest

from tests.integration.web.page_leader import says, says_then_hangs

pytestmark = pytest.mark.asyncio(loop_scope="module")
FOCUSED = """() => {
  const e = document.activeElement;
  const ring = getComputedStyle(e).outlineStyle !== "none" || getComputedStyle(e.closest("form, .model") ?? e).boxShadow
    !== "none" || getComputedStyle(e.closest(".model") ?? e).outlineStyle !== "none";
  return [e.id || e.getAttribute("aria-label") || e.textContent.trim(), ring];
}"""


async def test_everything_is_reached_by_keyboard_in_order_and_the_focus_is_seen(chat):
    chat.leader.scripts["tiny"] = says("one **two**\n\n```\ncode\n```")
    await chat.page.locator("#model:enabled").wait_for()
    begin = await chat.page.evaluate("document.activeElement.id")
    await chat.page.keyboard.type("hi")
    await chat.page.keyboard.press("Shift+Enter")
    await chat.page.keyboard.type("there")
    await chat.page.keyboard.press("Enter")
    await chat.page.locator(".figures").wait_for()
    await chat.page.locator(".skip").focus()
    order = [await chat.page.evaluate(FOCUSED)]
    for _ in range(14):
        await chat.page.keyboard.press("Tab")
        order.append(await chat.page.evaluate(FOCUSED))

    assert begin == "message"
    assert chat.leader.asked[0].generation.chat.messages[0].content == "hi\nthere"
    names = [name for name, _ in order]
    top = ["To the message", "model", "new-chat", "open-performance", "open-api", "open-settings"]
    assert names[: len(top)] == top
    inside = ["scroller", "Edit", "Copy", "Copy the code", "code", "Copy", "Regenerate"]
    assert names[len(top) : len(top) + len(inside)] == inside
    assert names[len(top) + len(inside) + 1] == "message"
    assert [name for name, is_seen in order if not is_seen] == []


async def test_panels_open_and_close_by_keyboard_and_give_the_focus_back(chat):
    for opener, title in (("open-performance", "Performance"), ("open-api", "API"), ("open-settings", "Settings")):
        await chat.page.locator(f"#{opener}").focus()
        await chat.page.keyboard.press("Enter")
        await chat.page.get_by_role("dialog", name=title).wait_for()
        assert await chat.page.evaluate("document.activeElement.closest('dialog') !== null")
        await chat.page.keyboard.press("Escape")
        await chat.page.get_by_role("dialog", name=title).wait_for(state="hidden")

        assert await chat.page.evaluate("document.activeElement.id") == opener


async def test_escape_closes_a_panel_before_it_stops_a_reply(chat):
    chat.leader.scripts["tiny"] = says_then_hangs("words")
    await chat.ask("hi")
    await chat.reply("words")
    await chat.page.locator("#open-settings").click()
    await chat.page.keyboard.press("Escape")
    assert not chat.leader.ended.is_set()
    assert await chat.page.locator("#stop").is_visible()
    await chat.page.keyboard.press("Escape")

    await chat.ended()


async def test_new_text_is_announced_by_whole_sentences(chat):
    chat.leader.scripts["tiny"] = says("The first sen", "tence. The sec", "ond one")
    await chat.ask("hi")
    await chat.ended()
    said = await chat.page.locator("#announcements p").all_inner_texts()

    assert [line.strip() for line in said][-2:] == ["The first sentence.", "The second one"]
    assert await chat.page.locator("#announcements").get_attribute("aria-live") == "polite"


async def test_every_control_has_a_name(chat):
    chat.leader.scripts["tiny"] = says("fine")
    await chat.ask("hi")
    await chat.ended()
    nameless = await chat.page.locator("button, input, select, textarea, a").evaluate_all(
        """all => all.filter((e) => !(e.textContent.trim() || e.getAttribute("aria-label") || e.labels?.length))
          .map((e) => e.outerHTML)"""
    )

    assert nameless == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_text_stands_out_from_its_ground_in_light_and_dark(open_chat, leader, scheme):
    """WCAG AA: at least 4.5 to 1."""
    chat = await open_chat(leader, color_scheme=scheme)
    contrasts = await chat.page.evaluate(
        """() => {
          const style = getComputedStyle(document.documentElement);
          const of255 = (hex) => parseInt(hex, 16) / 255;
          const channels = (name) => style.getPropertyValue(name).match(/[0-9a-f]{2}/gi).map(of255);
          const light = (name) => channels(name).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
            .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
          const pairs = [["--ink", "--paper"], ["--ink", "--raised"], ["--ink", "--tint"], ["--soft", "--paper"],
            ["--soft", "--raised"], ["--soft", "--sunk"], ["--accent", "--paper"], ["--accent", "--raised"],
            ["--bad", "--bad-tint"], ["--bad", "--raised"], ["--on-accent", "--accent"]];
          return pairs.map(([a, b]) => [`${a} on ${b}`, (Math.max(light(a), light(b)) + 0.05) /
            (Math.min(light(a), light(b)) + 0.05)]);
        }"""
    )
    ground = await chat.page.evaluate("getComputedStyle(document.body).backgroundColor")

    assert [name for name, contrast in contrasts if contrast < 4.5] == []
    assert ground == {"light": "rgb(250, 249, 246)", "dark": "rgb(21, 22, 20)"}[scheme]


async def test_a_phone_shows_everything_without_scrolling_sideways(open_chat, leader):
    leader.scripts["tiny"] = says("`a_very_long_name_" + "x" * 200 + "`\n\n```\n" + "y" * 300 + "\n```\n\n" + "z" * 300)
    chat = await open_chat(leader, viewport={"width": 360, "height": 640}, has_touch=True, is_mobile=True)
    await chat.page.locator("#model:enabled").wait_for()
    await chat.page.get_by_label("Message").fill("one line")
    await chat.page.keyboard.press("Enter")
    assert leader.asked == [], "a touch keyboard has no Shift and Enter: Enter begins a line"
    await chat.page.get_by_role("button", name="Send").tap()
    await chat.ended()
    wide = """() => [...document.querySelectorAll("html, body, main, dialog[open], dialog[open] .dialog-body")]
      .some((e) => e.scrollWidth > e.clientWidth)"""
    found = [await chat.page.evaluate(wide)]
    for name in ("Performance", "API", "Settings"):
        await chat.page.get_by_role("button", name=name, exact=True).tap()
        await chat.page.get_by_role("dialog", name=name).wait_for()
        found.append(await chat.page.evaluate(wide))
        await chat.page.get_by_role("dialog", name=name).get_by_role("button", name="Close").tap()

    assert found == [False] * 4


async def test_nothing_moves_for_whoever_wants_no_motion(open_chat, leader):
    leader.scripts["tiny"] = says_then_hangs("words")
    chat = await open_chat(leader, reduced_motion="reduce")
    await chat.ask("hi")
    await chat.reply("words")
    await chat.page.locator("#open-settings").click()
    moving = await chat.page.evaluate(
        "document.getAnimations().filter((a) => a.effect.getComputedTiming().activeDuration > 0).length"
    )

    assert moving == 0


async def test_the_performance_view_shows_speed_stages_links_and_the_time_of_a_token(chat):
    chat.leader.scripts["tiny"] = says("fine")
    await chat.ask("hi")
    await chat.page.locator(".figures").click()
    view = chat.page.locator("#performance")
    await view.locator(".split").nth(1).wait_for()
    text = " ".join((await view.inner_text()).split())

    for words in (
        *("18.4", "95 of 100 within 910 ms", "1 running", "3 waiting", "2 stopped"),
        *("kitchen", "GeForce GTX 1660 SUPER", "layers 15–29", "61 %", "900 of 16,384 tokens", "direct link"),
        *("21 ms", "links 8.2 ms", "latest reply here"),
    ):
        assert words in text, words


async def test_the_ring_is_shown_also_where_the_leader_measures_nothing(open_chat, leader):
    async def knows_no_such_call(request, context):
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "from before there were figures")

    leader.GetPerformance = knows_no_such_call
    chat = await open_chat(leader)
    await chat.page.locator("#model:enabled").wait_for()
    await chat.page.get_by_role("button", name="Performance").click()
    view = chat.page.locator("#performance")
    await view.locator(".stages", has_text="kitchen").wait_for()

    assert "too old" in await view.inner_text()


async def test_the_api_panel_gives_lines_that_work_here(chat):
    await chat.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await chat.page.locator("#model:enabled").wait_for()
    await chat.page.get_by_role("button", name="API").click()
    await chat.page.get_by_role("button", name="Copy curl").click()
    await chat.page.locator("button", has_text="Copied").wait_for()
    curl = await chat.page.evaluate("navigator.clipboard.readText()")
    chat.leader.scripts["tiny"] = says("from the shell")
    shell = await asyncio.create_subprocess_exec(
        "sh", "-c", curl, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    printed, _ = await asyncio.wait_for(shell.communicate(), 20)

    assert b"from the shell" in printed and b"[DONE]" in printed
    assert f"{chat.url}/v1/chat/completions" in curl and '"model": "tiny"' in curl
    assert await chat.page.locator("#api .fact code").first.inner_text() == f"{chat.url}/v1"


async def test_no_request_leaves_the_gateway_in_a_whole_visit(chat):
    chat.leader.scripts["tiny"] = says("fine")
    await chat.ask("hi")
    await chat.ended()
    for opener in ("open-performance", "open-api", "open-settings"):
        await chat.page.locator(f"#{opener}").click()
        await chat.page.keyboard.press("Escape")

    assert {url for url in chat.requests if not url.startswith(f"{chat.url}/")} == set()
    assert len(chat.requests) > 20
