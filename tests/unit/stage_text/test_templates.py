"""Templates in their process: what transformers makes of them, and an end to those that have none."""

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from silentswarm.core.v1.generation_pb2 import Chat, ChatMessage, Constraint, Generation
from swarm_core.clock import SystemClock
from swarm_core.errors import BadRequest, ServableCorrupt
from swarm_stage.engine.budget import KvBudget
from swarm_stage.engine.inbox import Inbox
from swarm_stage.serve.replies import Replies
from swarm_stage.text.codec import load_text_codec
from swarm_stage.text.hostile import TemplateHostile
from swarm_stage.text.workroom import TaskKilled, TaskRefused, Workroom

from tests.unit.stage_text.text_models import CHATML, QWEN, R1, write_model

CHAT = Chat(messages=[ChatMessage(role="user", content="Hi")])
FOR_EVER = "{% for a in range(100000) %}" * 3 + "{% endfor %}" * 3


@pytest.fixture(scope="module")
def room():
    room = Workroom()
    yield room
    room.close()


def render(room, template, **values):
    return room.ask({"do": "render", "template": template, "values": {"messages": [], **values}}, 3.0)["text"]


@pytest.mark.parametrize(
    "template",
    [
        CHATML,
        QWEN,
        R1,
        "{% for m in messages %}\n{% if loop.index>1 %}{% break %}{% endif %}\n{{ m | tojson(indent=2) }}{% endfor %}",
        "{% generation %}{{ messages[0].content }}{% endgeneration %} {{ bos_token }}",
        "{%- set ns = namespace(a=1) -%}{%- set ns.a = ns.a + 1 -%}{{ ns.a }}{{ strftime_now('%Y') }}",
        "{% macro say(x) %}[{{ x }}]{% endmacro %}{{ say(messages[0]['content'] | trim) }}{{ tools is none }}",
    ],
)
def test_a_template_renders_as_transformers_renders_it(tmp_path, template):
    codec = load_text_codec(write_model(tmp_path, template=template))
    messages = [{"role": "user", "content": ' <é> "quoted" '}, {"role": "assistant", "content": "b"}]
    expected = codec._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)

    assert codec._render(messages, [], None) == expected
    codec.close()


def test_a_template_without_end_is_ended_and_the_next_conversation_is_served(tmp_path):
    looping = "{% if 'loop' in messages[0].content %}" + FOR_EVER + "{% endif %}" + CHATML
    codec = load_text_codec(write_model(tmp_path, template=looping))
    codec.chat_prompt(CHAT)
    started_s = time.monotonic()
    with pytest.raises(TemplateHostile, match="did not end within"):
        codec.chat_prompt(Chat(messages=[ChatMessage(role="user", content="loop")]))

    assert time.monotonic() - started_s < 9
    assert codec.chat_prompt(CHAT).ids
    codec.close()


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
        ("{{ raise_exception.__globals__['os'] }}", "unsafe"),
        ("{{ cycler.__init__.__globals__.os.popen('id').read() }}", "unsafe|undefined"),
        ("{{ messages.append(1) }}", "unsafe|not safely callable"),
        ("{{ 'a' * 2000000000 }}", "memory"),
        ("{{ range(1000000000) | list }}", "[Rr]ange too big"),
        ("{% for i in range(90) %}{{ 'a' * 100000 }}{% endfor %}", "characters"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "without end"),
        ("{% for %}", "[Ee]xpected"),
        ("{{ raise_exception('Conversation roles must alternate') }}", "Conversation roles must alternate"),
        ("{{ messages[7].content.foo.bar }}", "undefined|no element"),
        ("{% include '/etc/passwd' %}", "loader"),
        ("{{ 1 // 0 }}", "zero"),
    ],
)
def test_what_a_template_may_not_do_is_refused_in_words(room, template, words):
    with pytest.raises((TaskRefused, TaskKilled), match=words):
        render(room, template)


def test_a_room_works_on_after_its_child_was_killed(room):
    with pytest.raises(TaskKilled):
        room.ask({"do": "render", "template": FOR_EVER, "values": {}}, 0.3)

    assert render(room, "{{ messages | length }}") == "0"


def test_what_renders_sees_no_environment(room):
    render(room, "")
    environment = Path(f"/proc/{room._child.pid}/environ").read_bytes()
    names = {pair.split(b"=")[0] for pair in environment.split(b"\0") if pair}

    assert names <= {b"PYTHONPATH", b"LC_ALL"}


def test_a_child_ends_when_nobody_holds_its_room():
    room = Workroom()
    render(room, "x")
    child = room._child
    room._line.close()

    assert child.wait(timeout=10) == 0


def test_lone_surrogates_come_back_as_they_went(room):
    assert render(room, "{{ messages[0] }}", messages=["\ud800é"]) == "\ud800é"


def test_the_words_of_a_refusal_name_the_field(tmp_path):
    template = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + CHATML
    )
    codec = load_text_codec(write_model(tmp_path, template=template))
    with pytest.raises(BadRequest, match="System role not supported") as refused:
        codec.chat_prompt(Chat(messages=[ChatMessage(role="system", content="Be kind.")]))

    assert refused.value.facts["field"] == "messages"
    codec.close()


@pytest.mark.parametrize("template", [FOR_EVER, "{{ ''.__class__.__mro__ }}", "{{ 'a' * 2000000000 }}"])
async def test_a_hostile_template_fails_the_load_with_a_reason(tmp_path, template):
    codec = load_text_codec(write_model(tmp_path, template=template))
    inbox = Inbox(asyncio.get_running_loop())
    replies = Replies(inbox, codec, 600, KvBudget(100, 100), SystemClock())

    with pytest.raises(ServableCorrupt, match="the model's chat template refuses this"):
        await replies.check_template()
    codec.close()


async def test_a_template_that_wants_another_conversation_does_not_fail_the_load(tmp_path):
    template = "{{ raise_exception('only with tools') }}"
    codec = load_text_codec(write_model(tmp_path, template=template))
    replies = Replies(Inbox(asyncio.get_running_loop()), codec, 600, KvBudget(100, 100), SystemClock())

    assert await replies.check_template() is None
    codec.close()


async def test_grammars_that_take_all_their_time_do_not_hold_up_prompts(tmp_path):
    codec = load_text_codec(write_model(tmp_path))
    replies = Replies(Inbox(asyncio.get_running_loop()), codec, 600, KvBudget(100, 100), SystemClock())
    bombs = []
    for place in range(4):
        schema = {"allOf": [{"type": "string", "pattern": f"{place}.{{{each * 10}}}b"} for each in range(60)]}
        asked = Generation(chat=CHAT, constraint=Constraint(json_schema=json.dumps(schema)))
        bombs.append(asyncio.ensure_future(anext(replies.generate(f"bomb {place}", asked))))
    await asyncio.sleep(0)  # they begin
    started_s = time.monotonic()
    await replies._encode_in_time(Generation(chat=CHAT))
    took_s = time.monotonic() - started_s
    refused = await asyncio.gather(*bombs, return_exceptions=True)

    assert took_s < 1.5
    assert all(isinstance(each, BadRequest) and each.facts["field"] == "constraint" for each in refused)
    fine = Generation(chat=CHAT, constraint=Constraint(json_object={}))
    assert await replies._compile_in_time((await replies._encode_in_time(fine)).grammar)
    codec.grammar_compiler.close()
    codec.close()


HOLDER = """
import sys, time
from swarm_stage.text.workroom import Workroom
room = Workroom()
room.ask({"do": "render", "template": "x", "values": {}}, 20.0)
print(room._child.pid, flush=True)
if sys.argv[1] == "busy":
    room.ask({"do": "render", "template": sys.argv[2], "values": {}}, 2.0)
time.sleep(60)
"""


@pytest.mark.parametrize("state", ["idle", "busy"])
def test_nothing_is_left_behind_by_a_stage_that_is_killed(state):
    """An idle child sees the end of its line; a busy one is ended by its own alarm, a second after its time."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, state, FOR_EVER], stdout=subprocess.PIPE, text=True)
    child = Path(f"/proc/{int(holder.stdout.readline())}")
    holder.kill()
    holder.wait()
    deadline_s = time.monotonic() + 10
    while child.exists() and "\nState:\tZ" not in (child / "status").read_text() and time.monotonic() < deadline_s:
        time.sleep(0.05)

    assert not child.exists() or "\nState:\tZ" in (child / "status").read_text()
