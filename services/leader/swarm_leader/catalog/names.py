"""Model ids and the folders they live in. Pure."""

import re
from pathlib import Path

from swarm_core.errors import BadRequest

ID_CHARACTERS_MAX = 200
_FOLDER_BYTES_MAX = 255  # what file systems take
_ID = re.compile(r"[A-Za-z0-9._/-]+")
_SLASH = "---"
# How a .gguf file's name ends in what its weights are rounded to: .Q4_1, -Q4_K_M, -UD-IQ2_XXS, .q8_0, -f16, .BF16
_QUANTISATION = re.compile(
    r"(?<=.)(?:[.-]UD)?[._-](?:I?Q[1-8](?:_[0-9A-Z]+)*|TQ[12]_0|MXFP4(?:_MOE)?|BF16|FP?(?:16|32))$", re.IGNORECASE
)


def check_model_id(model_id: str) -> str:
    """A model id, as given: letters, digits and . _ - /, at most 200 characters.

    No part may be empty or start with a dot, and "---" is refused, because a folder name writes "/" so.
    Raises BadRequest.
    """
    if not _ID.fullmatch(model_id) or len(model_id) > ID_CHARACTERS_MAX:
        raise BadRequest(
            f"model id {model_id[:ID_CHARACTERS_MAX]!r} must be 1 to {ID_CHARACTERS_MAX} letters, digits or . _ - /",
            field="model_id",
        )
    if any(not part or part.startswith(".") for part in model_id.split("/")):
        raise BadRequest(f"model id {model_id!r} has a part that is empty or starts with a dot", field="model_id")
    folder = model_id.replace("/", _SLASH)
    if folder.replace(_SLASH, "/") != model_id or len(folder) > _FOLDER_BYTES_MAX:
        raise BadRequest(
            f'model id {model_id!r} cannot name a folder: no "---", no "-" next to a "/", not too many "/"',
            field="model_id",
        )
    return model_id


def folder_of(model_id: str) -> str:
    """The folder's name. Raises BadRequest when the id is not one."""
    return check_model_id(model_id).replace("/", _SLASH)


def model_id_of(folder: str) -> str:
    """The model id a folder's name stands for. Raises BadRequest when it stands for none."""
    return check_model_id(folder.replace(_SLASH, "/"))


def model_id_from_source(source: str) -> str:
    """A model id from what is imported: a hub id as it is, else the last part of the path.

    A folder of the Hugging Face cache (models--org--name/snapshots/...) gives org/name; a .gguf file's name loses its
    ending and what names the quantisation, for the model is served in whole floats.
    Raises BadRequest when nothing usable is left.
    """
    path = Path(source)
    cached = next((part for part in path.parts if part.startswith("models--")), None)
    if cached is not None and "snapshots" in path.parts:
        name = cached.removeprefix("models--").replace("--", "/")
    elif re.fullmatch(r"[\w.-]+/[\w.-]+", source):
        name = source
    elif path.name.lower().endswith(".gguf"):
        name = _QUANTISATION.sub("", path.name[: -len(".gguf")])
    else:
        name = path.name
    name = re.sub(r"[^A-Za-z0-9._/-]+", "-", name)
    name = re.sub(r"-{3,}", "--", name)
    return check_model_id("/".join(part.strip("-").lstrip(".") for part in name.split("/")))
