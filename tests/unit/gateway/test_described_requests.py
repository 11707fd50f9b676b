"""Requests made from the description of /v1: what it allows is read, the rest refused as a 400."""

import json
import re

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, GenerationMode
from swarm_gateway.openai.chat_completions.read import read_chat
from swarm_gateway.openai.completions.read import read_completion
from swarm_gateway.openai.openapi import openai_paths, openai_schemas
from swarm_gateway.openai.responses.read import read_response
from swarm_gateway.problems import HttpProblem

READ = {"/v1/chat/completions": read_chat, "/v1/completions": read_completion, "/v1/responses": read_response}
EXAMPLES = 30
# Where fields must fit together, texts must be JSON, or the maker of examples takes a property's name for any.
UNSAYABLE = {
    "messages", "input", "prompt", "tools", "tool_choice", "top_logprobs", "min_tokens", "best_of", "echo",
    "logit_bias", "response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice",
    "guided_grammar", "text",
}  # fmt: skip


@pytest.mark.parametrize("path", READ)
def test_what_is_described_is_read_but_for_what_no_schema_can_say(path):
    document = {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "paths": {path: openai_paths()[path]}}
    schema = schemathesis.openapi.from_dict({**document, "components": {"schemas": openai_schemas()}})
    (operation,) = (found.ok() for found in schema.get_all_operations())
    wrong, read_count = set(), 0

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=GenerationMode.POSITIVE))
    def read(case: Case) -> None:
        nonlocal read_count
        try:
            READ[path](json.dumps(case.body).encode())
            read_count += 1
        except HttpProblem as refused:
            assert refused.problem.status == 400
            wrong.add(re.split(r"[.\[]", refused.problem.param or "")[0])

    read()

    assert wrong <= UNSAYABLE
    assert read_count >= 3
