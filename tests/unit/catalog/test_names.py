"""Model ids and folder names: one stands for the other, and nothing leaves the root."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from swarm_core.errors import BadRequest
from swarm_leader.catalog.names import check_model_id, folder_of, model_id_from_source, model_id_of


@pytest.mark.parametrize(
    ("model_id", "folder"),
    [("SmolLM2-135M", "SmolLM2-135M"), ("org/name_1.5-x", "org---name_1.5-x"), ("a/b/c", "a---b---c")],
)
def test_a_slash_becomes_three_dashes_and_back(model_id: str, folder: str):
    assert folder_of(model_id) == folder
    assert model_id_of(folder) == model_id


@pytest.mark.parametrize(
    "model_id",
    [
        "",
        "/a",
        "a/",
        "a//b",
        "..",
        "a/../b",
        ".hidden",
        "a/.b",
        "a b",
        "a\0",
        "a\n",
        "\u00e4",
        "a---b",
        "a-/b",
        "a/-b-/c",
        "x" * 201,
        "/".join("a" * 100),
    ],
)
def test_what_cannot_name_a_folder_is_no_model_id(model_id: str):
    with pytest.raises(BadRequest):
        check_model_id(model_id)


@given(st.text(alphabet="ab.-_/", max_size=30))
def test_every_accepted_id_comes_back_from_its_folder_which_is_one_plain_name(model_id: str):
    try:
        folder = folder_of(model_id)
    except BadRequest:
        return

    assert model_id_of(folder) == model_id
    assert "/" not in folder and not folder.startswith(".")


@pytest.mark.parametrize(
    ("source", "model_id"),
    [
        ("/models/SmolLM2-135M-Instruct", "SmolLM2-135M-Instruct"),
        ("/models/SmolLM2 (135M).Q4_1.gguf", "SmolLM2-135M"),
        ("org/name", "org/name"),
        ("/home/x/.cache/huggingface/hub/models--org--name/snapshots/0123abc", "org/name"),
    ],
)
def test_a_model_id_is_made_from_the_source(source: str, model_id: str):
    assert model_id_from_source(source) == model_id


@pytest.mark.parametrize(
    "ending",
    [".Q4_1", "-Q4_K_M", "-Q4_0_4_4", ".q8_0", "_q6_k", "-f16", ".BF16", "-fp32", "-IQ2_XXS", "-UD-Q4_K_XL", "-MXFP4"],
)
def test_a_model_id_made_from_a_gguf_file_does_not_name_its_quantisation(ending: str):
    assert model_id_from_source(f"/models/SmolLM2-135M-Instruct{ending}.gguf") == "SmolLM2-135M-Instruct"


@pytest.mark.parametrize("name", ["Q4_1", "Qwen3-0.6B", "model-v2", "llama-q9_x", "phi.f8"])
def test_other_endings_of_a_gguf_file_stay_in_its_model_id(name: str):
    assert model_id_from_source(f"/models/{name}.gguf") == name


def test_a_source_without_usable_letters_gives_no_id():
    with pytest.raises(BadRequest):
        model_id_from_source("/models/\u00e4\u00f6")
