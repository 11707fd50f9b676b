"""docs/openai.md says of every field of every endpoint what becomes of it."""

import re
from pathlib import Path

import pytest
from pydantic import BaseModel
from swarm_gateway.openai.chat_completions.request import UNSUPPORTED as CHAT_UNSUPPORTED
from swarm_gateway.openai.chat_completions.request import ChatRequest
from swarm_gateway.openai.completions.request import UNSUPPORTED as COMPLETION_UNSUPPORTED
from swarm_gateway.openai.completions.request import CompletionRequest
from swarm_gateway.openai.reading.sampling import DrawingFields
from swarm_gateway.openai.responses.request import UNSUPPORTED as RESPONSE_UNSUPPORTED
from swarm_gateway.openai.responses.request import ResponsesRequest

PAGE = (Path(__file__).parents[3] / "docs" / "openai.md").read_text()
SHARED = PAGE.partition("## How tokens are drawn")[2].partition("\n## ")[0]


def told_in(section: str) -> set[str]:
    """Everything that stands as code in it."""
    return set(re.findall(r"`([^`]+)`", section))


def fields_of(model: type[BaseModel]) -> set[str]:
    """Fields as clients write them."""
    return {field.alias or name for name, field in model.model_fields.items()}


@pytest.mark.parametrize(
    ("path", "model", "unsupported"),
    [
        ("/v1/chat/completions", ChatRequest, CHAT_UNSUPPORTED),
        ("/v1/completions", CompletionRequest, COMPLETION_UNSUPPORTED),
        ("/v1/responses", ResponsesRequest, RESPONSE_UNSUPPORTED),
    ],
)
def test_every_field_is_told(path, model, unsupported):
    section = PAGE.partition(f"\n## {path}\n")[2].partition("\n## ")[0]

    assert fields_of(model) | unsupported.keys() <= told_in(section) | told_in(SHARED)


def test_what_all_share_is_told_once():
    assert fields_of(DrawingFields) <= told_in(SHARED)
