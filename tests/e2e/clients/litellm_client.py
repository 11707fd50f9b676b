"""litellm, as its users write it. Prints one JSON document of what came back."""

import json
import os
import sys

import litellm

PROMPT = os.environ["PROMPT"]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}},
            "required": ["city"],
        },
    },
}


def ask(**more: object) -> object:
    return litellm.completion(
        model=f"openai/{os.environ['MODEL']}",
        messages=[{"role": "user", "content": PROMPT}],
        api_base=os.environ["OPENAI_BASE_URL"],
        api_key=os.environ["OPENAI_API_KEY"],
        temperature=0,
        max_tokens=48,
        **more,
    )


def main() -> None:
    call = ask(tools=[WEATHER], tool_choice="required").choices[0].message.tool_calls[0]
    json.dump(
        {
            "whole": ask().choices[0].message.content,
            "streamed": "".join(part.choices[0].delta.content or "" for part in ask(stream=True)),
            "tool": {"name": call.function.name, "arguments": json.loads(call.function.arguments)},
        },
        sys.stdout,
    )


main()
