"""The openai package, as its users write it. Prints one JSON document of what came back."""

import json
import os
import sys

import openai

MODEL, PROMPT = os.environ["MODEL"], os.environ["PROMPT"]
MESSAGES = [{"role": "user", "content": PROMPT}]
ONE_CALL = {"tool_choice": "required", "parallel_tool_calls": False}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
SCHEMA = {
    "type": "object",
    "properties": {"capital": {"type": "string", "maxLength": 20}},
    "required": ["capital"],
    "additionalProperties": False,
}


def chat(client: openai.OpenAI) -> dict:
    whole = client.chat.completions.create(model=MODEL, messages=MESSAGES, temperature=0, max_tokens=32)
    text, usage, finish = "", None, None
    stream = client.chat.completions.create(
        model=MODEL,
        messages=MESSAGES,
        temperature=0,
        max_tokens=32,
        stream=True,
        stream_options={"include_usage": True},
    )
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
    return {
        "whole": whole.choices[0].message.content,
        "streamed": text,
        "finish": [whole.choices[0].finish_reason, finish],
        "usage": [whole.usage.total_tokens, usage.total_tokens],
    }


def shaped(client: openai.OpenAI) -> dict:
    called = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, tools=[WEATHER], **ONE_CALL, temperature=0, max_tokens=64
    )
    call = called.choices[0].message.tool_calls[0]
    response_format = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA}}
    answer = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, response_format=response_format, temperature=0, max_tokens=48
    )
    likely = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, temperature=0, max_tokens=4, logprobs=True, top_logprobs=2
    )
    return {
        "tool": {"name": call.function.name, "arguments": json.loads(call.function.arguments)},
        "tool_finish": called.choices[0].finish_reason,
        "json": json.loads(answer.choices[0].message.content),
        "logprobs": [entry.token for entry in likely.choices[0].logprobs.content],
    }


def tool_stream(client: openai.OpenAI) -> dict:
    with client.chat.completions.stream(
        model=MODEL, messages=MESSAGES, tools=[WEATHER], **ONE_CALL, temperature=0, max_tokens=64
    ) as stream:
        for _ in stream:
            pass
        call = stream.get_final_completion().choices[0].message.tool_calls[0]
    return {"streamed_tool": {"name": call.function.name, "arguments": json.loads(call.function.arguments)}}


def responses(client: openai.OpenAI) -> dict:
    whole = client.responses.create(model=MODEL, input=PROMPT, temperature=0, max_output_tokens=32)
    kinds, text = [], ""
    with client.responses.stream(model=MODEL, input=PROMPT, temperature=0, max_output_tokens=32) as stream:
        for event in stream:
            kinds.append(event.type)
            text += event.delta if event.type == "response.output_text.delta" else ""
        final = stream.get_final_response()
    return {
        "response": whole.output_text,
        "response_streamed": text,
        "response_final": final.output_text,
        "response_ends": kinds[-1],
    }


def completions(client: openai.OpenAI) -> dict:
    done = client.completions.create(model=MODEL, prompt="One, two, three,", temperature=0, max_tokens=5)
    parts = client.completions.create(model=MODEL, prompt="One, two, three,", temperature=0, max_tokens=5, stream=True)
    return {"completion": done.choices[0].text, "completion_streamed": "".join(part.choices[0].text for part in parts)}


def errors(client: openai.OpenAI) -> dict:
    seen = {}
    for name, call in {
        "model": lambda: client.chat.completions.create(model="no-such-model", messages=MESSAGES),
        "messages": lambda: client.chat.completions.create(model=MODEL, messages=[]),
        "key": lambda: openai.OpenAI(api_key="sk-wrong").models.list(),
    }.items():
        try:
            call()
            seen[name] = "no error"
        except openai.APIError as error:
            seen[name] = type(error).__name__
    return {"errors": seen}


def main() -> None:
    client = openai.OpenAI()
    results = {"version": openai.__version__, "models": [model.id for model in client.models.list()]}
    for part in (chat, shaped, tool_stream, responses, completions, errors):
        results |= part(client)
    json.dump(results, sys.stdout)


main()
