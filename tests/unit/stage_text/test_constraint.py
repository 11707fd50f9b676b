"""Shapes of replies at work: what they allow, and that no grammar ends or holds up what compiles it."""

import json
import random
import time
from dataclasses import replace

import numpy as np
import pytest
from silentswarm.core.v1.generation_pb2 import (
    TOOL_MODE_NONE,
    TOOL_MODE_REQUIRED,
    Chat,
    ChatMessage,
    Constraint,
    Generation,
    Tool,
    ToolChoice,
)
from swarm_core.errors import BadRequest, StageFailed
from swarm_stage.text.codec import load_text_codec
from swarm_stage.text.content_grammar import CONSTRAINT_FIELD, check_regex
from swarm_stage.text.grammar import reply_grammar
from swarm_stage.text.reply_reader import ReplyReader
from swarm_wire.token_sets import mask_of

from tests.unit.stage_text.text_models import CHATML, KINDS, QWEN, R1, write_model

CITY = {"type": "object", "properties": {"city": {"type": "string"}, "n": {"type": "integer"}}, "required": ["city"]}
STRICT = {**CITY, "additionalProperties": False}
VOCABULARY = 600  # rows of the head, more than there are tokens
LLAMA = CHATML + '{# tools: {"name": .., "parameters": ..} and "parameters" #}'
LISTED = CHATML + "{# tools [TOOL_CALLS] #}"
NAMED = CHATML + "{# tools [TOOL_CALLS]name[ARGS] #}"


@pytest.fixture(scope="module")
def codec_of(tmp_path_factory):
    """The codec of a tokenizer and a template, made once."""
    made = {}

    def get(kind="byte_level", template=CHATML):
        if (kind, template) not in made:
            made[kind, template] = load_text_codec(write_model(tmp_path_factory.mktemp("model"), kind, template))
        return made[kind, template]

    yield get
    for codec in made.values():
        codec.grammar_compiler.close()
        codec.close()


def asked(constraint=None, tools=(), mode=0, name="", parallel=True, thinking=None):
    chat = Chat(
        messages=[ChatMessage(role="user", content="Hi")], parallel_tool_calls=parallel, enable_thinking=thinking
    )
    chat.tools.extend(Tool(name=each, parameters=json.dumps(CITY)) for each in tools)
    chat.tool_choice.CopyFrom(ToolChoice(mode=mode, name=name))
    return Generation(chat=chat, constraint=constraint)


def begun(codec, generation, **changed):
    """The constraint of a request and the shape of its reply."""
    shape = replace(codec.chat_prompt(generation.chat).shape, **changed)
    grammar = reply_grammar(generation, shape, codec.special_marks(shape))
    return codec.grammar_compiler.constraint(grammar, VOCABULARY), shape


def allowed(constraint):
    return set(np.flatnonzero(mask_of(constraint.allowed(), VOCABULARY)).tolist())


def follow(codec, constraint, text):
    """Draw `text` token by token; whether it may go on and end, or the first place where it is not allowed."""
    special = {name: token for token, name in codec._added.items()}
    ids = codec._tokenizer(text, add_special_tokens=False)["input_ids"]
    for place, token in enumerate(ids):
        if token not in allowed(constraint):
            return f"refused: {codec.decode(ids[place:]) or codec._added.get(token)}"
        constraint.accept(token)
    return "may end" if codec.end_ids & allowed(constraint) else "goes on", special and ids


def verdict(codec, generation, text):
    found = follow(codec, begun(codec, generation)[0], text)
    return found if isinstance(found, str) else found[0]


def schema(schema, strict=True):
    return Constraint(json_schema=json.dumps(schema), strict=strict)


def test_a_schema_allows_what_follows_it_and_nothing_else(codec_of):
    codec, generation = codec_of(), asked(schema(STRICT))

    assert verdict(codec, generation, '{"city":"Paris 漢字","n":3}') == "may end"
    assert verdict(codec, generation, '{"city":"Paris"') == "goes on"
    assert verdict(codec, generation, '{"n":3}').startswith("refused")
    assert verdict(codec, generation, '{"city": "Paris"}').startswith("refused")  # compact
    assert verdict(codec, generation, "Sure").startswith("refused")


def test_the_other_shapes(codec_of):
    codec = codec_of()
    assert verdict(codec, asked(Constraint(json_object={})), '{"a":[1,{"b":null}]}') == "may end"
    assert verdict(codec, asked(Constraint(json_object={})), "[1").startswith("refused")
    assert verdict(codec, asked(Constraint(regex=r"\d{3}/[a-f]+")), "123/abc") == "may end"
    assert verdict(codec, asked(Constraint(regex=r"\d{3}/[a-f]+")), "12/").startswith("refused")
    assert verdict(codec, asked(Constraint(regex="a\nb")), "a\nb") == "may end"
    choices = Constraint(choices={"texts": ["yes", "no", 'may"be\n']})
    assert verdict(codec, asked(choices), 'may"be\n') == "may end"
    assert verdict(codec, asked(choices), "maybe").startswith("refused")
    lark = Constraint(grammar='start: "<" name ">"\nname: /[a-z]+/')
    assert verdict(codec, asked(lark), "<abc>") == "may end"


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_of_tokenizer_draws_a_reply_of_the_shape(kind, codec_of):
    """Random draws from what is allowed always make the JSON that was asked for."""
    codec = codec_of(kind)
    wanted = {
        "type": "object",
        "properties": {
            "a": {"enum": ["x y", "é"]},
            "b": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
        },
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    random_of = random.Random(5)
    for _ in range(5):
        constraint, shape = begun(codec, asked(schema(wanted)), may_reason=False)
        reader = ReplyReader(codec, shape, (), codec.end_ids)
        text = ""
        for _ in range(200):
            token = random_of.choice(sorted(allowed(constraint)))
            constraint.accept(token)
            if token in codec.end_ids:
                break
            text += reader.push(token).content
        document = json.loads(text + reader.finish().content)

        assert document["a"] in ("x y", "é") and len(document["b"]) <= 3


def test_special_tokens_are_no_text_of_any_shape(codec_of):
    codec = codec_of()
    constraint, _ = begun(codec, asked(Constraint(regex=".*")))

    assert allowed(constraint) & codec.special_ids == codec.end_ids


def test_what_was_drawn_again_stands_where_it_stood(codec_of):
    codec = codec_of()
    ids = codec._tokenizer('{"city":"Pa', add_special_tokens=False)["input_ids"]
    first, second = (begun(codec, asked(schema(STRICT)))[0] for _ in range(2))
    for token in ids:
        first.allowed()
        first.accept(token)
    for token in ids:
        second.accept(token)

    assert allowed(first) == allowed(second)


def test_a_token_that_was_not_allowed_fails_the_reply(codec_of):
    constraint, _ = begun(codec_of(), asked(schema(STRICT)))
    with pytest.raises(StageFailed, match="does not allow"):
        constraint.accept(codec_of()._tokenizer.convert_tokens_to_ids("a"))


@pytest.mark.parametrize("regex", ["((a{1,500}){1,500}){1,500}", "((a|b|[a-z]{1,60}){0,60}c){0,60}"])
def test_a_shape_that_grows_beyond_bounds_once_it_is_followed_is_the_callers_fault(codec_of, regex):
    """It compiles, and tokens later it does not; told as a failure of the stage, clients would ask again and again."""
    codec = codec_of()
    constraint, _ = begun(codec, asked(Constraint(regex=regex)))
    with pytest.raises(BadRequest, match="the grammar of the reply became too much to follow") as refusal:
        for token in codec._tokenizer("aaa" * 20, add_special_tokens=False)["input_ids"]:
            constraint.allowed()
            constraint.accept(token)

    assert refusal.value.facts["field"] == CONSTRAINT_FIELD


def test_after_its_end_only_ends_are_allowed(codec_of):
    codec = codec_of()
    constraint, _ = begun(codec, asked(Constraint(choices={"texts": ["a"]})))
    assert follow(codec, constraint, "a")[0] == "may end"
    end = min(codec.end_ids)
    constraint.accept(end)

    assert allowed(constraint) == codec.end_ids


def test_the_shape_holds_behind_the_reasoning(codec_of):
    codec, generation = codec_of(template=QWEN), asked(schema(STRICT))
    assert verdict(codec, generation, '<think>\nHm {"x"\n</think>\n\n{"city":"Paris"}') == "may end"
    assert verdict(codec, generation, '{"city":"Paris"}') == "may end"
    assert verdict(codec, generation, "<think>\nHm") == "goes on"
    assert verdict(codec, generation, "<think>a</think>b").startswith("refused")
    assert verdict(codec, generation, "Well").startswith("refused")
    off = asked(schema(STRICT), thinking=False)
    assert verdict(codec, off, "<think>").startswith("refused")
    opened = codec_of(template=R1)
    assert verdict(opened, generation, 'Hm\n</think>\n{"city":"Paris"}') == "may end"
    assert verdict(opened, generation, "Hm") == "goes on"


CALL = '<tool_call>\n{"name": "get", "arguments": {"city": "Paris", "n": 3}}\n</tool_call>'
OTHER = '<tool_call>\n{"name": "put", "arguments": {"city": "Rome"}}\n</tool_call>'


@pytest.mark.parametrize("template", [CHATML, QWEN])
def test_tools_are_called_as_the_choice_says(template, codec_of):
    codec = codec_of(template=template)
    auto = asked(tools=["get", "put"])
    assert verdict(codec, auto, "Just text, with < and <tool> in it.") == "may end"
    assert verdict(codec, auto, f"I look.\n{CALL}\n{OTHER}") == "may end"
    assert verdict(codec, auto, '<tool_call>\n{"name": "nobody').startswith("refused")
    assert verdict(codec, auto, '<tool_call>\n{"name": "get", "arguments": {"town').startswith("refused")
    assert verdict(codec, auto, f"{CALL} and text").startswith("refused")
    must = asked(tools=["get", "put"], mode=TOOL_MODE_REQUIRED)
    assert verdict(codec, must, "Just").startswith("refused")
    assert verdict(codec, must, CALL + OTHER) == "may end"
    named = asked(tools=["get", "put"], mode=TOOL_MODE_REQUIRED, name="put")
    assert verdict(codec, named, OTHER) == "may end"
    assert verdict(codec, named, CALL).startswith("refused")
    assert verdict(codec, asked(tools=["get"], parallel=False), CALL) == "may end"
    assert verdict(codec, asked(tools=["get"], parallel=False), CALL + CALL).startswith("refused")
    both = asked(schema(STRICT), tools=["get"])
    assert verdict(codec, both, '{"city":"Paris"}') == "may end"
    assert verdict(codec, both, CALL) == "may end"
    assert verdict(codec, both, "Just").startswith("refused")


def test_no_tool_is_told_or_called_when_none_may_be(codec_of):
    codec, generation = codec_of(), asked(tools=["get"], mode=TOOL_MODE_NONE)
    prompt = codec.chat_prompt(generation.chat)

    assert prompt.ids == codec.chat_prompt(asked().chat).ids
    assert reply_grammar(generation, prompt.shape, {}) is None


def test_tools_in_the_formats_of_llama_and_mistral(codec_of):
    llama = codec_of(template=LLAMA)
    auto = asked(tools=["get", "put"])
    assert verdict(llama, auto, '{"name": "get", "parameters": {"city": "Paris"}}') == "may end"
    assert verdict(llama, auto, '<|python_tag|>{"name": "put", "parameters": {"city": "Paris"}}') == "may end"
    assert verdict(llama, auto, "No {braces} first") == "may end"
    assert verdict(llama, auto, '{"name": "nobody').startswith("refused")
    listed = codec_of(template=LISTED)
    call = '{"name": "get", "arguments": {"city": "Paris"}}'
    assert verdict(listed, auto, f"[TOOL_CALLS][{call}, {call}]") == "may end"
    assert verdict(listed, asked(tools=["get"], parallel=False), f"[TOOL_CALLS][{call}, ").startswith("refused")
    named = codec_of(template=NAMED)
    assert verdict(named, auto, 'Well.[TOOL_CALLS]get[ARGS]{"city": "Paris"}[TOOL_CALLS]put[ARGS]{"city"') == "goes on"
    assert verdict(named, auto, "[TOOL_CALLS]nobody").startswith("refused")


def test_a_choice_of_a_tool_that_is_not_there_is_refused(codec_of):
    for generation in (asked(mode=TOOL_MODE_REQUIRED), asked(tools=["get"], mode=TOOL_MODE_REQUIRED, name="put")):
        with pytest.raises(BadRequest) as refused:
            codec_of().chat_prompt(generation.chat)
        assert refused.value.facts["field"] == "tool_choice"


def deep(levels):
    nested: dict = {"type": "string"}
    for _ in range(levels):
        nested = {"type": "object", "properties": {"a": nested}}
    return nested


LETTERS = "abcdefghijklmnopqrst"
MANY_RULES = "start: r0\n" + "\n".join(f"r{i}: r{i + 1}" for i in range(12_000)) + '\nr12000: "a"'
BAD = {
    "repeated repetition": Constraint(regex="foo**"),
    "regex with a hole": Constraint(regex="(a"),
    "look-ahead": Constraint(regex="(?=a)b"),
    "empty regex": Constraint(regex=""),
    "long regex": Constraint(regex="a" * 20_000),
    "malformed grammar": Constraint(grammar="start: ((("),
    "no grammar": Constraint(grammar=" "),
    "duplicate rule": Constraint(grammar='start: a\na: "x"\na: "y"'),
    "rule without end": Constraint(grammar="start: a\na: b\nb: a"),
    "rule of another grammar": Constraint(grammar="start: @reply"),
    "twelve thousand rules deep": Constraint(grammar=MANY_RULES),
    "huge grammar": Constraint(grammar="start: /a/\n" + "//" + "x" * 300_000),
    "schema that is no object": Constraint(json_schema="[1]"),
    "schema that is no JSON": Constraint(json_schema='{"type":'),
    "schema of depth 100": schema(deep(60)),
    "schema of depth 100,000": Constraint(json_schema='{"a":' * 100_000 + "1" + "}" * 100_000),
    "reference to itself": schema({"$ref": "#"}),
    "references in a circle": schema({"$ref": "#/a", "a": {"$ref": "#/b"}, "b": {"$ref": "#/a"}}),
    "reference to nothing": schema({"$ref": "#/$defs/a"}),
    "reference elsewhere": schema({"$ref": "http://127.0.0.1:9/schema.json"}),
    "reference to a file": schema({"properties": {"a": {"$ref": "file:///etc/passwd"}}}),
    "type of no kind": schema({"type": "banana"}),
    "pattern that is no regex": schema({"type": "string", "pattern": "foo**"}),
    "keyword that is not known, strictly": schema({"type": "object", "not": {"type": "string"}}),
    "exploding": schema({"allOf": [{"type": "string", "pattern": f"a.{{{i * 10}}}b"} for i in range(60)]}),
    "exploding too": schema({"allOf": [{"anyOf": [{"properties": {i + j: {}}} for j in "abcdef"]} for i in LETTERS]}),
    "no choice": Constraint(choices={"texts": []}),
    "empty choice": Constraint(choices={"texts": ["a", ""]}),
    "nothing": Constraint(strict=True),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_shape_that_cannot_be_used_is_refused_in_time_and_names_its_field(name, codec_of):
    """The kinds that ended whole servers elsewhere, or made them wait for ever."""
    begun(codec_of(), asked(Constraint(json_object={})))  # the child is there
    started_s = time.monotonic()
    with pytest.raises(BadRequest) as refused:
        begun(codec_of(), asked(BAD[name]))

    assert time.monotonic() - started_s < 4  # 2 s, on a machine that does other things as well
    assert refused.value.facts["field"] == "constraint"
    assert len(refused.value.message) < 500
    assert verdict(codec_of(), asked(schema(STRICT)), '{"city":"P"}') == "may end"


def test_a_tools_schema_has_the_same_limits_under_its_own_field(codec_of):
    for parameters in ('{"$ref": "#"}', "[1]", "{", '{"type": "banana"}', json.dumps(deep(60))):
        generation = asked(tools=["get"])
        generation.chat.tools.add(name="put", parameters=parameters)
        with pytest.raises(BadRequest) as refused:
            begun(codec_of(), generation)
        assert refused.value.facts["field"] == "tools"


def test_a_keyword_that_is_not_known_is_let_pass_unless_strict(codec_of):
    lenient = schema({**STRICT, "not": {"required": ["n"]}}, strict=False)
    assert verdict(codec_of(), asked(lenient), '{"city":"P"}') == "may end"


@pytest.mark.parametrize(
    "regex", [r"\p{L}+", r"a{2}?", r"a??", r"[*+?]{2}", r"\*+", r"\}+", r"(a*)*", "a+b*", r"[\]*]+", "{", r"x{1,3}y?"]
)
def test_regexes_that_repeat_no_repetition_are_not_refused_for_it(regex, codec_of):
    assert check_regex(regex, "constraint") is None


def test_a_grammar_is_compiled_once(codec_of):
    codec = codec_of()
    begun(codec, asked(schema(STRICT)))
    started_s = time.monotonic()
    for _ in range(20):
        begun(codec, asked(schema(STRICT)))[0].allowed()

    assert time.monotonic() - started_s < 2
