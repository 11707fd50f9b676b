"""What goes wrong, as the page tells it: in words, with what to do, and going on by itself where that is possible."""

import asyncio

import pytest
from silentswarm.leader.v1 import serving_pb2
from swarm_core import errors

from tests.integration.gateway.scripted_leader import done, queued, start_leader, started, tokens
from tests.integration.web.page_leader import TOKEN, placed, says, stage

pytestmark = pytest.mark.asyncio(loop_scope="module")
RECOVERING = serving_pb2.PLACEMENT_STATE_RECOVERING
FAILED = serving_pb2.PLACEMENT_STATE_FAILED


def fails(error: errors.SwarmError, *before):
    """A script: these events, then a failure."""

    async def script(request):
        for event in before:
            yield event
        raise error

    return script


async def test_the_place_in_the_queue_is_shown_while_it_changes(chat):
    go_on = asyncio.Event()

    async def script(request):
        yield queued(3, "8 of 8 places are taken")
        await asyncio.sleep(0.5)
        yield queued(2, "8 of 8 places are taken")
        await go_on.wait()
        yield started()
        yield tokens("at last")
        yield done()

    chat.leader.scripts["tiny"] = script
    await chat.ask("hi")
    await chat.standing("Waiting, position 3. 8 of 8 places are taken")
    await chat.standing("Waiting, position 2.")
    said = await chat.page.locator("#announcements").inner_text()
    go_on.set()
    await chat.reply("at last")
    await chat.ended()

    assert "Waiting, position 3." in said and "Waiting, position 2." in said
    assert not await chat.page.locator(".standing").is_visible()


async def test_a_reply_that_is_held_in_its_middle_says_why_until_it_goes_on(chat):
    go_on, end = asyncio.Event(), asyncio.Event()

    async def script(request):
        yield started()
        yield tokens("half")
        yield queued(1, "stage 1: attic loads it")
        await go_on.wait()
        yield tokens(" and half")
        await end.wait()
        yield done()

    chat.leader.scripts["tiny"] = script
    await chat.ask("hi")
    await chat.standing("The reply goes on in a moment. stage 1: attic loads it")
    go_on.set()
    await chat.reply("half and half")
    is_said_still = await chat.page.locator(".standing").is_visible()
    end.set()
    await chat.ended()

    assert not is_said_still


async def test_who_waits_can_leave(chat):
    async def script(request):
        yield queued(1)
        await asyncio.sleep(30)

    chat.leader.scripts["tiny"] = script
    await chat.ask("hi")
    await chat.standing("Waiting, position 1")
    assert not chat.leader.ended.is_set()
    await chat.page.keyboard.press("Escape")

    assert await asyncio.wait_for(chat.leader.ended.wait(), 2)
    await chat.ended()
    assert not await chat.page.locator(".standing").is_visible()


async def test_a_reply_that_breaks_off_keeps_its_text_and_can_be_tried_again(chat):
    broken = errors.StageFailed("stage 1 on attic ended: killed by signal 9")
    chat.leader.scripts["tiny"] = fails(broken, started(), tokens("half a "), tokens("reply"))
    await chat.ask("hi")
    await chat.ended()
    text = await chat.page.locator(".reply .text").inner_text()
    note = await chat.page.locator(".reply .note").inner_text()
    chat.leader.scripts["tiny"] = says("whole")
    await chat.page.get_by_role("button", name="Try again").click()
    await chat.reply("whole")

    assert text == "half a reply"
    assert "broke off" in note and "attic" in note and "kept" in note
    assert await chat.page.locator(".reply").count() == 1


async def test_a_full_line_is_tried_again_when_it_was_told_to(chat):
    chat.leader.scripts["tiny"] = fails(errors.Overloaded("64 requests wait already", retry_after_s=1))
    await chat.ask("hi")
    await chat.standing("Trying again in")
    chat.leader.scripts["tiny"] = says("room now")
    await chat.reply("room now")
    await chat.ended()

    assert len(chat.leader.asked) == 2


async def test_a_wait_can_be_cut_short(chat):
    chat.leader.scripts["tiny"] = fails(errors.Overloaded("64 requests wait already", retry_after_s=200))
    await chat.ask("hi")
    await chat.standing("Trying again in")
    chat.leader.scripts["tiny"] = says("room now")
    await chat.page.get_by_role("button", name="Try now").click()
    await chat.reply("room now")

    assert len(chat.leader.asked) == 2


async def test_a_dead_fellow_is_named_and_the_chat_goes_on_when_it_is_back(chat):
    chat.leader.scripts["tiny"] = fails(errors.ModelNotReady("tiny is recovering; try again soon", state="recovering"))
    chat.leader.placement = placed(stage(0, "kitchen"), stage(1, "attic", "away"), state=RECOVERING)
    await chat.ask("hi")
    await chat.standing("attic (layers 15–29) is away")
    chat.leader.scripts["tiny"] = says("back again")
    chat.leader.placement = placed(stage(0, "kitchen"), stage(1, "attic"))
    await chat.reply("back again")
    await chat.ended()

    assert len(chat.leader.asked) == 2


async def test_a_model_that_failed_says_why_and_can_be_loaded_from_here(chat):
    why = "fellow attic was lost: it did not report for 15 s"
    words = f"tiny is failed ({why}); load it with: swarm model-load tiny"
    chat.leader.scripts["tiny"] = fails(errors.ModelNotReady(words, state="failed"))
    chat.leader.placement = placed(stage(0, "kitchen", "ended"), stage(1, "attic", "lost"), state=FAILED, reason=why)
    await chat.ask("hi")
    await chat.standing(why)
    await chat.page.get_by_role("button", name="Load the model").click()
    while not chat.leader.loads:
        await asyncio.sleep(0.01)
    chat.leader.scripts["tiny"] = says("loaded again")
    chat.leader.placement = placed(stage(0, "kitchen"), stage(1, "attic"))
    await chat.reply("loaded again")

    assert [load.model_id for load in chat.leader.loads] == ["tiny"]


async def test_the_chat_outlives_its_leader(chat):
    chat.leader.scripts["tiny"] = says("before")
    await chat.ask("one")
    await chat.ended()
    await chat.server.stop(0)
    await chat.ask("two")
    await chat.standing("does not answer")
    again, _ = await start_leader(chat.leader, chat.port)
    chat.leader.scripts["tiny"] = says("after")
    try:
        await chat.reply("after")
        await chat.ended()
        assert len(chat.leader.asked) == 2
    finally:
        await again.stop(0)


async def test_without_any_model_the_page_says_what_to_do(open_chat, leader):
    leader.models = []
    chat = await open_chat(leader)
    await chat.page.get_by_text("swarm model-import").wait_for()
    await chat.page.get_by_label("Message").fill("hi")

    assert await chat.page.get_by_role("button", name="Send").is_disabled()
    await chat.page.keyboard.press("Enter")
    assert leader.asked == []


async def test_an_unreachable_leader_is_said_and_found_again_without_a_reload(open_chat, leader):
    leader.failure = errors.Unavailable("the leader's database is away")
    chat = await open_chat(leader)
    await chat.page.locator("#banner", has_text="database is away").wait_for()
    leader.failure = None
    leader.scripts["tiny"] = says("found")
    await chat.page.locator("#banner").wait_for(state="hidden")
    await chat.ask("hi")
    await chat.ended()

    assert await chat.page.locator(".reply .text").inner_text() == "found"


async def test_a_token_is_asked_for_tried_and_kept_for_this_tab_only(open_chat, leader):
    leader.tokens = {TOKEN: ("operate",)}
    leader.scripts["tiny"] = says("let in")
    chat = await open_chat(leader)
    entry = chat.page.get_by_role("dialog", name="Token")
    await entry.wait_for()
    await entry.get_by_label("Token", exact=True).fill("sk-swarm-wrong")
    await chat.page.keyboard.press("Enter")
    await entry.get_by_text("not valid here").wait_for()
    await entry.get_by_label("Token", exact=True).fill(TOKEN)
    await chat.page.keyboard.press("Enter")
    await entry.wait_for(state="hidden")
    await chat.ask("hi")
    await chat.reply("let in")
    await chat.ended()

    assert await chat.page.evaluate("sessionStorage.getItem('silentswarm.token')") == TOKEN
    assert TOKEN not in await chat.page.evaluate("JSON.stringify(localStorage)")
    assert [url for url in chat.requests if TOKEN in url or "wrong" in url] == []
    assert TOKEN not in await chat.page.content()
    assert await chat.context.cookies() == []


async def test_a_token_is_remembered_on_this_machine_only_when_asked_and_can_be_forgotten(open_chat, leader):
    leader.tokens = {TOKEN: ("operate",)}
    chat = await open_chat(leader)
    entry = chat.page.get_by_role("dialog", name="Token")
    await entry.get_by_label("Token", exact=True).fill(TOKEN)
    await entry.get_by_label("Remember on this machine").check()
    await entry.get_by_role("button", name="Use it").click()
    await chat.page.locator("#model:enabled").wait_for()
    kept = await chat.page.evaluate("localStorage.getItem('silentswarm.token')")
    await chat.page.reload()
    await chat.page.locator("#model:enabled").wait_for()
    await chat.page.get_by_role("button", name="Settings").click()
    await chat.page.get_by_text("remembered on this machine").wait_for()
    await chat.page.get_by_role("button", name="Forget it").click()

    assert kept == TOKEN
    assert await chat.page.evaluate("localStorage.getItem('silentswarm.token')") is None


async def test_a_token_that_was_revoked_meanwhile_is_asked_for_again_and_the_message_is_not_lost(open_chat, leader):
    leader.scripts["tiny"] = says("let in")
    chat = await open_chat(leader)
    await chat.page.locator("#model:enabled").wait_for()
    leader.tokens = {TOKEN: ("operate",)}
    await chat.ask("my long question")
    entry = chat.page.get_by_role("dialog", name="Token")
    await entry.get_by_label("Token", exact=True).fill(TOKEN)
    await chat.page.keyboard.press("Enter")
    await chat.reply("let in")

    assert [message.content for message in leader.asked[-1].generation.chat.messages] == ["my long question"]


async def test_a_token_that_may_only_look_is_told_so_and_another_can_be_given(open_chat, leader):
    leader.tokens = {"sk-swarm-looker": ("read",), TOKEN: ("operate",)}
    leader.scripts["tiny"] = says("let in")
    chat = await open_chat(leader)
    entry = chat.page.get_by_role("dialog", name="Token")
    await entry.get_by_label("Token", exact=True).fill("sk-swarm-looker")
    await chat.page.keyboard.press("Enter")
    await entry.wait_for(state="hidden")
    await chat.ask("hi")
    await entry.get_by_text("scope “operate”").wait_for()
    await entry.get_by_label("Token", exact=True).fill(TOKEN)
    await chat.page.keyboard.press("Enter")
    await chat.reply("let in")
    await chat.ended()

    assert len(leader.asked) == 1


async def test_whoever_closes_the_token_entry_finds_it_in_the_banner(open_chat, leader):
    leader.tokens = {TOKEN: ("operate",)}
    chat = await open_chat(leader)
    entry = chat.page.get_by_role("dialog", name="Token")
    await entry.wait_for()
    await chat.page.keyboard.press("Escape")
    await entry.wait_for(state="hidden")
    await chat.page.get_by_role("button", name="Enter a token").first.click()

    assert await entry.is_visible()


async def test_forget_everything_leaves_nothing_behind(chat):
    chat.leader.scripts["tiny"] = says("fine")
    await chat.ask("hi")
    await chat.ended()
    await chat.page.evaluate("sessionStorage.setItem('silentswarm.token', 'x'); localStorage.setItem('others', '1')")
    await chat.page.get_by_role("button", name="Settings").click()
    await chat.page.get_by_role("button", name="Forget everything").click()

    ours = "JSON.stringify([localStorage, sessionStorage].flatMap(Object.keys))"
    assert await chat.page.evaluate(ours) == '["others"]'
    assert await chat.page.locator(".message").count() == 0
