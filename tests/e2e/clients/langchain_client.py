"""langchain-openai, as its users write it. Prints one JSON document of what came back."""

import json
import os
import sys

from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field

PROMPT = os.environ["PROMPT"]


class GetWeather(BaseModel):
    """The weather in a city."""

    city: str = Field(max_length=12)


class Answer(BaseModel):
    """A capital."""

    capital: str = Field(max_length=20)


def main() -> None:
    model = ChatOpenAI(model=os.environ["MODEL"], temperature=0, max_tokens=48)
    streamed = list(model.stream(PROMPT))
    called = model.bind_tools([GetWeather], tool_choice="required").invoke(PROMPT)
    shaped = model.with_structured_output(Answer, method="json_schema").invoke(PROMPT)
    json.dump(
        {
            "whole": model.invoke(PROMPT).content,
            "streamed": "".join(part.content for part in streamed),
            "tool": {"name": called.tool_calls[0]["name"], "arguments": called.tool_calls[0]["args"]},
            "json": shaped.model_dump(),
        },
        sys.stdout,
    )


main()
