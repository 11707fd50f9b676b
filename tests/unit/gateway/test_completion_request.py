"""Which requests for plain completions are read, and what the others are told."""

import json

import pytest
from silentswarm.core.v1 import generation_pb2
from swarm_gateway.openai.completions.read import read_completion
from swarm_gateway.problems import HttpProblem


def generations(**fields) -> tuple[generation_pb2.Generation, ...]:
    """What a request asks for, in order."""
    return read_completion(json.dumps({"model": "m", "prompt": "Once", **fields}).encode()).generations


@pytest.mark.parametrize(
    ("prompt", "texts", "ids"),
    [
        ("a", ["a"], [[]]),
        (["a", "b"], ["a", "b"], [[], []]),
        ([1, 2], [""], [[1, 2]]),
        ([[1, 2], [3]], ["", ""], [[1, 2], [3]]),
    ],
)
def test_a_prompt_comes_in_four_forms(prompt, texts, ids):
    made = generations(prompt=prompt)

    assert [one.prompt for one in made] == texts
    assert [list(one.prompt_ids.ids) for one in made] == ids


def test_each_prompt_has_its_choices_and_sixteen_tokens_when_none_are_named():
    made = generations(prompt=["a", "b"], n=2, seed=3)

    assert [one.prompt for one in made] == ["a", "a", "b", "b"]
    assert made[0].sampling.seed == made[2].sampling.seed == 3 != made[1].sampling.seed
    assert {one.new_tokens_max for one in made} == {16}
    assert generations(max_tokens=5)[0].new_tokens_max == 5
    assert generations(logprobs=0)[0].sampling.HasField("top_logprobs")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": ""}, "prompt[0]"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [""]}, "prompt[0]"),
        ({"prompt": [[]]}, "prompt[0]"),
        ({"prompt": [-1]}, "prompt[0][0]"),
        ({"prompt": [1, "a"]}, "prompt[0][1]"),
        ({"prompt": ["a", 1]}, "prompt[1]"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": [2**32]}, "prompt[0][0]"),
        ({"prompt": {"a": 1}}, "prompt"),
        ({"prompt": ["a"] * 33}, "prompt"),
        ({"prompt": ["a"] * 5, "n": 8}, "prompt"),
        ({"suffix": "x"}, "suffix"),
        ({"best_of": 2}, "best_of"),
        ({"best_of": 1, "n": 2}, "best_of"),
        ({"logprobs": 6}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"echo": True, "prompt": [1]}, "echo"),
        ({"echo": True, "logprobs": 1}, "echo"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"min_tokens": 9, "max_tokens": 5}, "min_tokens"),
    ],
)
def test_what_cannot_be_is_named(fields, param):
    with pytest.raises(HttpProblem) as refused:
        generations(**fields)

    assert (refused.value.problem.status, refused.value.problem.param) == (400, param)


def test_a_stop_may_be_one_text_here_too():
    assert list(generations(stop="END")[0].stop) == ["END"]


def test_values_that_ask_for_nothing_are_let_pass():
    assert generations(suffix=None, best_of=1, user="u", echo=False) == generations()
