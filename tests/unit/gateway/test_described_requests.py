"""Requests made from the description of /v1: most of what it allows is read, and the rest is refused as a 400."""

import json

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


@pytest.mark.parametrize("path", READ)
def test_most_of_what_is_described_is_read(path):
    """What no schema can say (calls and answers that fit together, two shapes at once) is the rest."""
    document = {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "paths": {path: openai_paths()[path]}}
    schema = schemathesis.openapi.from_dict({**document, "components": {"schemas": openai_schemas()}})
    (operation,) = (found.ok() for found in schema.get_all_operations())
    outcomes = []

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
        try:
            READ[path](json.dumps(case.body).encode())
            outcomes.append(200)
        except HttpProblem as refused:
            outcomes.append(refused.problem.status)

    read()

    assert set(outcomes) <= {200, 400}
    assert outcomes.count(200) >= len(outcomes) / 4
