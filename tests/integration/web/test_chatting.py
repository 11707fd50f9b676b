"""Chatting in the page: streamed, stopped, done anew, edited, copied, kept."""

import asyncio
import json
import re

import pytest
from silentswarm.core.v1 import generation_pb2
from swarm_core import errors

from tests.integration.gateway.scripted_leader import WAIT_S, done, started, tokens
from tests.integration.web.page_leader import PageLeader, says, says_then_hangs

pytestmark = pytest.mark.asyncio(loop_scope="module")
ANSWER = "A **ring** of stages.\n\n```python\nprint('hi')\n```\n"


def asked(leader: PageLeader, at: int = -1) -> list[tuple[int, str]]:
    """Role and text of every message of a request."""
    return [(message.role, message.content) for message in leader.asked[at].generation.chat.messages]


async def test_a_reply_is_shown_while_it_grows_and_says_who_answered_and_how_fast(chat):
    go_on = asyncio.Event()

    async def script(request):
        yield started()
        yield tokens("Hello ")
        await go_on.wait()
        yield tokens("**world**")
        yield done(completion_tokens=3)

    chat.leader.scripts["tiny"] = script
    await chat.ask("hi")
    await chat.reply("Hello")
    go_on.set()
    await chat.page.locator(".reply strong", has_text="world").wait_for()
    await chat.ended()

    figures = await chat.page.locator(".figures").inner_text()
    assert "kitchen → attic" in figures
    assert re.search(r"66\.7 tokens/s · first token .* · 3 tokens", figures)  # 2 tokens after the first in 30 ms
    assert asked(chat.leader) == [("user", "hi")]


async def test_the_lines_of_a_poem_stay_lines(chat):
    chat.leader.scripts["tiny"] = says("The sea,\n", "the sea,\nthe open sea")
    await chat.ask("a poem")
    await chat.ended()

    assert await chat.page.locator(".reply .text").inner_text() == "The sea,\nthe sea,\nthe open sea"


async def test_stop_ends_the_call_at_the_leader_and_keeps_what_came(chat):
    chat.leader.scripts["tiny"] = says_then_hangs("Once upon ", "a time")
    await chat.ask("a story")
    await chat.reply("Once upon a time")
    assert not chat.leader.ended.is_set()
    await chat.page.get_by_role("button", name="Stop").click()

    await asyncio.wait_for(chat.leader.ended.wait(), 2)
    await chat.ended()
    assert await chat.page.locator(".reply .text").inner_text() == "Once upon a time"
    assert await chat.page.locator(".reply .note").inner_text() == "Stopped."


async def test_closing_the_page_ends_the_call_at_the_leader(chat):
    chat.leader.scripts["tiny"] = says_then_hangs("Once upon a time")
    await chat.ask("a story")
    await chat.reply("Once")
    assert not chat.leader.ended.is_set()
    await chat.page.close()

    assert await asyncio.wait_for(chat.leader.ended.wait(), 2)


async def test_a_reply_can_be_drawn_anew(chat):
    chat.leader.scripts["tiny"] = says("first")
    await chat.ask("hi")
    await chat.reply("first")
    await chat.ended()
    chat.leader.scripts["tiny"] = says("second")
    await chat.page.get_by_role("button", name="Regenerate").click()
    await chat.reply("second")

    assert await chat.page.locator(".reply").count() == 1
    assert asked(chat.leader) == [("user", "hi")]


async def test_an_edited_message_replaces_what_followed_it(chat):
    chat.leader.scripts["tiny"] = says("fine")
    for text in ("one", "two"):
        await chat.ask(text)
        await chat.reply("fine")
        await chat.ended()
    await chat.page.get_by_label("Message").fill("half a thought")
    await chat.page.locator(".user").first.hover()
    await chat.page.get_by_role("button", name="Edit").first.click()
    assert await chat.page.get_by_label("Message").input_value() == "one"
    await chat.ask("one, better")
    await chat.ended()

    assert await chat.page.locator(".bubble").all_inner_texts() == ["one, better"]
    assert asked(chat.leader) == [("user", "one, better")]
    assert await chat.page.get_by_label("Message").input_value() == "half a thought"


async def test_the_whole_conversation_is_sent_and_a_stopped_reply_is_part_of_it(chat):
    chat.leader.scripts["tiny"] = says_then_hangs("half")
    await chat.ask("one")
    await chat.reply("half")
    await chat.page.keyboard.press("Escape")
    await chat.ended()
    chat.leader.scripts["tiny"] = says("whole")
    await chat.ask("two")
    await chat.ended()

    assert asked(chat.leader) == [("user", "one"), ("assistant", "half"), ("user", "two")]


async def test_what_got_no_reply_is_said_together_with_the_next_message(chat):
    """Many templates refuse two messages of the same role in a row."""

    async def refuses(request):
        raise errors.ContextTooLong("too long", needed_tokens=4312, budget_tokens=4096)
        yield

    chat.leader.scripts["tiny"] = refuses
    await chat.ask("one")
    await chat.page.locator(".reply .note", has_text="4096").wait_for()
    await chat.ended()
    chat.leader.scripts["tiny"] = says("fine")
    await chat.ask("two")
    await chat.reply("fine")

    assert asked(chat.leader) == [("user", "one\n\ntwo")]


async def test_copy_gives_the_source_of_a_reply_and_of_a_code_block(chat):
    await chat.context.grant_permissions(["clipboard-read", "clipboard-write"])
    chat.leader.scripts["tiny"] = says(ANSWER)
    await chat.ask("hi")
    await chat.ended()

    async def copied(name: str) -> str:
        await chat.page.get_by_role("button", name=name, exact=True).last.click()
        await chat.page.locator("button", has_text="Copied").wait_for()
        return await chat.page.evaluate("navigator.clipboard.readText()")

    assert await copied("Copy the python code") == "print('hi')"
    await chat.page.locator("button", has_text="Copied").wait_for(state="hidden")
    await chat.page.locator(".foot").get_by_role("button", name="Copy").click()
    await chat.page.locator("button", has_text="Copied").wait_for()
    assert await chat.page.evaluate("navigator.clipboard.readText()") == ANSWER


async def test_copy_works_where_the_clipboard_has_no_interface(chat):
    """A page from another machine without TLS has none."""
    await chat.context.grant_permissions(["clipboard-read"])
    await chat.page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    chat.leader.scripts["tiny"] = says("plain words")
    await chat.ask("hi")
    await chat.ended()
    await chat.page.locator(".foot").get_by_role("button", name="Copy").click()

    await chat.page.locator("button", has_text="Copied").wait_for()
    await chat.page.get_by_label("Message").focus()
    await chat.page.keyboard.press("Control+V")
    assert await chat.page.get_by_label("Message").input_value() == "plain words"


async def test_reasoning_stands_apart_and_can_be_opened(chat):
    async def thinks(request):
        yield started()
        for text in ("Let me ", "think."):
            yield generation_pb2.GenerationEvent(
                sequence=2, tokens=generation_pb2.GenerationEvent.TokenBatch(reasoning=text, ids=[1])
            )
        yield tokens("42")
        yield done()

    chat.leader.scripts["tiny"] = thinks
    await chat.ask("why?")
    await chat.ended()

    assert await chat.page.locator(".reply .text").inner_text() == "42"
    reasoning = chat.page.locator(".reasoning-text")
    assert not await reasoning.is_visible()
    await chat.page.locator(".reasoning summary").click()
    assert await reasoning.inner_text() == "Let me think."


async def test_settings_go_with_the_next_message_and_empty_ones_are_left_out(chat):
    chat.leader.scripts["tiny"] = says("fine")
    await chat.ask("one")
    await chat.ended()
    await chat.page.get_by_role("button", name="Settings").click()
    await chat.page.get_by_label("System prompt").fill("Be brief.")
    await chat.page.get_by_label("Temperature").fill("0.3")
    await chat.page.get_by_label("Longest reply").fill("77")
    await chat.page.keyboard.press("Escape")
    await chat.ask("two")
    await chat.ended()
    await chat.page.reload()
    await chat.page.get_by_role("button", name="Settings").click()
    kept = await chat.page.get_by_label("Temperature").input_value()
    await chat.page.get_by_label("Temperature").fill("9")
    await chat.page.keyboard.press("Escape")
    await chat.ask("three")
    await chat.ended()

    first, second, third = (asked.generation for asked in chat.leader.asked)
    assert not first.sampling.HasField("temperature") and first.new_tokens_max == 0
    assert round(second.sampling.temperature, 3) == 0.3 and second.new_tokens_max == 77
    assert asked(chat.leader, 1)[0] == ("system", "Be brief.")
    assert kept == "0.3"
    assert not third.sampling.HasField("temperature"), "what the field refuses is not sent"


async def test_the_conversation_stays_in_this_browser_until_a_new_chat(chat):
    chat.leader.scripts["tiny"] = says(ANSWER)
    await chat.ask("hi")
    await chat.ended()
    await chat.page.reload()
    await chat.page.locator(".reply .code").wait_for()
    kept = json.loads(await chat.page.evaluate("localStorage.getItem('silentswarm.conversation')"))
    await chat.page.get_by_role("button", name="New chat").click()

    assert [message["content"] for message in kept["messages"]] == ["hi", ANSWER]
    assert await chat.page.locator(".message").count() == 0
    assert await chat.page.evaluate("localStorage.getItem('silentswarm.conversation')") is None
    assert await chat.page.evaluate("document.cookie") == ""
    assert await chat.context.cookies() == []


async def test_a_page_that_was_closed_in_the_middle_shows_what_came(chat):
    chat.leader.scripts["tiny"] = says_then_hangs("half a reply")
    await chat.ask("hi")
    await chat.reply("half a reply")
    await chat.page.reload()

    await chat.reply("half a reply")
    assert "closed before its end" in await chat.page.locator(".reply .note").inner_text()


async def test_what_is_kept_is_bounded_and_what_is_broken_is_left_alone(chat):
    await chat.page.evaluate(
        """() => {
          const message = (role) => ({role, content: role[0].repeat(30_000), state: "done"});
          const messages = Array.from({length: 100}, (_, at) => message(at % 2 ? "assistant" : "user"));
          messages.push({role: "user"}, null, {role: "tool", content: "x"}, {role: "user", content: "last", meta: 7});
          localStorage.setItem("silentswarm.conversation", JSON.stringify({version: 1, messages}));
        }"""
    )
    chat.leader.scripts["tiny"] = says("fine")
    await chat.page.reload()
    await chat.ask("more")
    await chat.ended()
    kept = await chat.page.evaluate("localStorage.getItem('silentswarm.conversation')")
    await chat.page.evaluate("localStorage.setItem('silentswarm.conversation', '{oops')")
    await chat.page.reload()

    assert 500_000 < len(kept) < 1_100_000 and '"last"' in kept
    await chat.page.locator("#welcome h2").wait_for()


async def test_a_browser_that_stores_nothing_still_chats(open_chat, leader):
    leader.scripts["tiny"] = says("fine")
    chat = await open_chat(leader)
    await chat.page.add_init_script(
        """Storage.prototype.getItem = Storage.prototype.setItem = () => {
          throw new DOMException("no", "SecurityError");
        };"""
    )
    await chat.page.reload()
    await chat.ask("hi")
    await chat.ended()

    assert await chat.page.locator(".reply .text").inner_text() == "fine"


async def test_a_choice_of_model_is_remembered_and_the_list_says_what_is_loaded(chat):
    await chat.page.locator("#model:enabled").wait_for()
    groups = await chat.page.locator("#model optgroup").evaluate_all(
        "groups => groups.map((group) => [group.label, ...[...group.children].map((option) => option.textContent)])"
    )
    chat.leader.scripts["org/tiny"] = says("slashes are fine")
    await chat.page.get_by_label("Model").select_option("org/tiny")
    await chat.page.reload()
    await chat.ask("hi")
    await chat.reply("slashes")

    assert groups[0] == ["Loaded", "tiny"]
    assert groups[1][1] == "org/tiny (idle)"
    assert chat.leader.asked[0].model_id == "org/tiny"


async def test_a_long_reply_does_not_pull_back_whoever_reads_further_up(open_chat, leader):
    go_on = asyncio.Event()

    async def long(request):
        yield started()
        yield tokens("line\n\n" * 60)
        await go_on.wait()
        yield tokens("line\n\n" * 60)
        yield tokens("the end")
        yield done()

    leader.scripts["tiny"] = long
    chat = await open_chat(leader, viewport={"width": 900, "height": 500})
    scroller = chat.page.locator("#scroller")
    at_end = "e => e.scrollHeight - e.scrollTop - e.clientHeight < 50"
    await chat.ask("hi")
    await chat.reply("line")
    await chat.page.wait_for_function(f"({at_end})(document.getElementById('scroller'))")
    await scroller.hover()
    await chat.page.mouse.wheel(0, -800)
    await chat.page.locator("#to-end").wait_for()
    go_on.set()
    await chat.ended()
    assert not await scroller.evaluate(at_end)
    await chat.page.get_by_role("button", name="To the end").click()

    assert await scroller.evaluate(at_end)


async def test_a_hanging_reply_is_one_call_however_often_enter_is_pressed(chat):
    async def hangs(request):
        await asyncio.sleep(WAIT_S)
        yield done()

    chat.leader.scripts["tiny"] = hangs
    await chat.ask("hi")
    await chat.page.get_by_label("Message").fill("again")
    for _ in range(3):
        await chat.page.keyboard.press("Enter")
    await asyncio.wait_for(chat.leader.begun.wait(), 5)

    assert len(chat.leader.asked) == 1
    assert await chat.page.get_by_label("Message").input_value() == "again"
