"""Tools, calls and their answers as templates want them, and in words where a template knows no tools."""

import json

import pytest
from silentswarm.core.v1.generation_pb2 import Chat, Tool
from swarm_core.errors import BadRequest
from swarm_stage.text.chat_messages import template_messages, template_tools, with_short_ids, with_told_tools
from swarm_stage.text.codec import load_text_codec
from swarm_stage.text.reply_shape import CallFormat, call_format, reasoning_marks

from tests.unit.stage_text.text_models import CHATML, QWEN, R1, write_model

NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + CHATML


def conversation():
    chat = Chat(tools=[Tool(name="get", description="Weather.", parameters='{"type": "object"}')])
    chat.messages.add(role="user", content="Weather?")
    answer = chat.messages.add(role="assistant", content="", reasoning="I look.")
    answer.tool_calls.add(id="call_abc_1", name="get", arguments='{"city": "Paris"}')
    answer.tool_calls.add(id="call_abc_2", name="get", arguments='{"city": "Rome"}')
    chat.messages.add(role="tool", content="sunny", tool_call_id="call_abc_1", name="get")
    chat.messages.add(role="tool", content="rainy", tool_call_id="call_abc_2")
    return chat


def test_calls_reach_a_template_with_their_arguments_as_objects():
    _, answer, first, _ = template_messages(conversation())

    assert answer["tool_calls"][0]["function"] == {"name": "get", "arguments": {"city": "Paris"}}
    assert answer["reasoning_content"] == "I look."
    assert first == {"role": "tool", "content": "sunny", "name": "get", "tool_call_id": "call_abc_1"}


def test_arguments_that_are_no_json_stay_a_text():
    chat = Chat()
    chat.messages.add(role="assistant").tool_calls.add(id="1", name="get", arguments='{"city": "Par')

    assert template_messages(chat)[0]["tool_calls"][0]["function"]["arguments"] == '{"city": "Par'


def test_mistrals_ids_are_nine_letters_and_the_answers_name_the_same():
    messages = with_short_ids(template_messages(conversation()))
    ids = [call["id"] for call in messages[1]["tool_calls"]]

    assert all(len(each) == 9 and each.isalnum() for each in ids) and len(set(ids)) == 2
    assert [messages[2]["tool_call_id"], messages[3]["tool_call_id"]] == ids


def test_a_template_that_knows_no_tools_is_told_in_words():
    chat = conversation()
    system, _, answer, responses = with_told_tools(template_messages(chat), template_tools(chat))

    assert system["role"] == "system" and '"name": "get"' in system["content"] and "<tool_call>" in system["content"]
    assert answer["content"].count("<tool_call>") == 2 and '{"city": "Rome"}' in answer["content"]
    assert "tool_calls" not in answer
    assert responses["role"] == "user" and responses["content"].count("<tool_response>") == 2
    assert set(responses) == {"role", "content"}


def test_a_system_message_stays_in_front_of_the_words_about_tools():
    chat = Chat(tools=conversation().tools)
    chat.messages.add(role="system", content="Be kind.")
    chat.messages.add(role="user", content="Hi")
    told = with_told_tools(template_messages(chat), template_tools(chat))

    assert [message["role"] for message in told] == ["system", "user"]
    assert told[0]["content"].startswith("Be kind.\n\n")


def test_a_template_that_knows_no_system_role_gets_it_in_the_question(tmp_path):
    codec = load_text_codec(write_model(tmp_path, template=NO_SYSTEM))
    text = codec.decode(codec.chat_prompt(conversation()).ids)

    assert text.startswith("user\nYou can call tools.") and "Weather?" in text
    codec.close()


def test_a_template_that_knows_tools_gets_them(tmp_path):
    codec = load_text_codec(write_model(tmp_path, template=QWEN))
    prompt = codec.chat_prompt(conversation())
    text = codec.decode(prompt.ids)

    assert '"type": "function"' in text and "You can call tools" not in text
    assert "<think>I look.</think>" in text
    assert prompt.shape.calls is CallFormat.HERMES and prompt.shape.tools == {"get"}
    codec.close()


@pytest.mark.parametrize(
    ("template", "found"),
    [
        (CHATML, None),
        (QWEN, CallFormat.HERMES),
        ("{% if tools %}<tool_call><function=name><parameter=x></tool_call>{% endif %}", None),
        ("{{ tools }} [TOOL_CALLS]", CallFormat.MISTRAL_LIST),
        ("{{ tools }} [TOOL_CALLS]name[ARGS]", CallFormat.MISTRAL_ARGS),
        ('{{ tools }} Respond in the format {"name": function name, "parameters": dictionary}', CallFormat.LLAMA),
        ("{{ tools }}<|python_tag|>", CallFormat.LLAMA),
        ("{{ tools }} in a way of its own", None),
    ],
)
def test_the_format_of_calls_is_what_the_template_shows(template, found):
    assert call_format(template) is found


def test_reasoning_is_known_by_template_or_vocabulary(tmp_path):
    assert reasoning_marks("", ["</think>"]).open == "<think>"
    assert reasoning_marks("[THINK] [/THINK]", []).close == "[/THINK]"
    assert reasoning_marks(CHATML, ["<|im_end|>"]) is None


def test_reasoning_that_the_prompt_begins_or_ends_is_known(tmp_path):
    chat = Chat()
    chat.messages.add(role="user", content="Hi")
    opened = load_text_codec(write_model(tmp_path / "r1", template=R1))
    either = load_text_codec(write_model(tmp_path / "qwen", template=QWEN))
    assert opened.chat_prompt(chat).shape.is_reasoning and not opened.chat_prompt(chat).shape.may_reason
    assert either.chat_prompt(chat).shape.may_reason and not either.chat_prompt(chat).shape.is_reasoning
    chat.enable_thinking = False
    shape = either.chat_prompt(chat).shape

    assert not shape.may_reason and not shape.is_reasoning and shape.reasoning is not None
    for codec in (opened, either):
        codec.close()


def test_a_template_that_takes_one_call_back_is_asked_for_one(tmp_path):
    llama = CHATML + "{% if tools %}{% endif %}{# <|python_tag|> supports single tool-calls at once! #}"
    codec = load_text_codec(write_model(tmp_path, template=llama))
    chat = Chat(tools=conversation().tools)
    chat.messages.add(role="user", content="Hi")

    assert codec.chat_prompt(chat).shape.calls_max == 1
    codec.close()


def test_parameters_that_are_no_object_are_refused_by_name():
    chat = Chat(tools=[Tool(name="get", parameters="[1]")])
    with pytest.raises(BadRequest, match="'get'") as refused:
        template_tools(chat)
    assert refused.value.facts["field"] == "tools"


def test_a_tool_without_parameters_takes_none():
    chat = Chat(tools=[Tool(name="get")])
    assert json.loads(json.dumps(template_tools(chat)[0]["function"]["parameters"])) == {
        "type": "object",
        "properties": {},
    }
