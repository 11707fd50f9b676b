"""llama-index's OpenAILike, as its users write it. Prints one JSON document of what came back."""

import json
import os
import sys

from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike


def main() -> None:
    model = OpenAILike(
        model=os.environ["MODEL"],
        api_base=os.environ["OPENAI_BASE_URL"],
        api_key=os.environ["OPENAI_API_KEY"],
        is_chat_model=True,
        temperature=0,
        max_tokens=48,
    )
    messages = [ChatMessage(role="user", content=os.environ["PROMPT"])]
    json.dump(
        {
            "whole": model.chat(messages).message.content,
            "streamed": "".join(part.delta or "" for part in model.stream_chat(messages)),
        },
        sys.stdout,
    )


main()
