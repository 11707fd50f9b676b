"""Kinds of fields every endpoint knows, and how a wrong one is told. Knows no endpoint."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from swarm_gateway.problems import HttpProblem, bad_request

INT32_MAX = 2**31 - 1


def _whole(value: object) -> object:
    """5.0 is the integer 5, as JSON schema has it; 5.5 is none."""
    return int(value) if type(value) is float and value.is_integer() else value


WHOLE = BeforeValidator(_whole)
Count = Annotated[int, Field(ge=1, le=INT32_MAX), WHOLE]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Temperature = Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)]
Penalty = Annotated[float, Field(ge=-2, le=2, allow_inf_nan=False)]
ModelId = Annotated[str, Field(min_length=1, max_length=512)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]  # of a function, or of a schema


# What a field that may be of several kinds holds; pydantic puts these into the paths of its errors.
_KINDS: Mapping[type, str] = {str: "<text>", dict: "<object>", list: "<array>"}


def kind_of(value: object) -> str | None:
    """Which of several kinds a value is of, None for any other."""
    return _KINDS.get(type(value))


def by_kind(words: str) -> Discriminator:
    """Reads a field by the kind of its value. words: what is told when it is of none."""
    return Discriminator(kind_of, custom_error_type="kind", custom_error_message=words)


class Strict(BaseModel):
    """Nothing is converted: "0.7" is no number, true is no count. Unknown fields are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


Schema = dict[str, Any]  # JSON schema; the stage compiles it and refuses what is none
SchemaOrText = Annotated[
    Annotated[Schema, Tag("<object>")] | Annotated[str, Tag("<text>")], by_kind("must be a JSON schema, or its text")
]


def _is_function(kind: str) -> str:
    if kind != "function":
        raise problem_in_value(f'tools of type "{kind[:50]}" are not supported; functions are')
    return kind


FunctionType = Annotated[str, AfterValidator(_is_function), WithJsonSchema({"const": "function"})]


class StreamOptions(Strict):
    """What a stream carries beside text."""

    include_usage: bool | None = None


M = TypeVar("M", bound=BaseModel)


def validated(model: type[M], document: Mapping[str, Any]) -> M:
    """The document as that model. Raises HttpProblem 400 whose param is the path of the first wrong field."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise _first_problem(error) from None


def refuse_unsupported(document: Mapping[str, Any], defaults_of: Mapping[str, tuple[object, ...]]) -> None:
    """Refuse what is known and cannot be honoured, unless it holds a value that asks for nothing; null always does.

    Raises HttpProblem 400, code "unsupported_parameter".
    """
    for name, defaults in defaults_of.items():
        value = document.get(name)
        if value is None or any(_is_same(value, default) for default in defaults):
            continue
        raise unsupported(name)


def unsupported(param: str, words: str = "is not supported") -> HttpProblem:
    """400 for what is known and not done."""
    return bad_request(f"{param} {words}", param=param, code="unsupported_parameter")


def wrong(param: str, words: str) -> HttpProblem:
    """400 for a value that cannot be."""
    return bad_request(f"{param}: {words}", param=param, code="invalid_value")


def problem_in_value(words: str) -> PydanticCustomError:
    """What a validator of a field raises; the field's path is put before it."""
    return PydanticCustomError("value", "{words}", {"words": words})


def _is_same(value: object, default: object) -> bool:
    """Equality as JSON has it: false is not 0, but 0.0 is."""
    return isinstance(value, bool) == isinstance(default, bool) and value == default


def _first_problem(error: ValidationError) -> HttpProblem:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    # What is of another kind lacks this kind's fields as well; the kind is what is wrong.
    first = next((problem for problem in problems if problem["loc"][-1:] == ("type",)), problems[0])
    param = ""
    for part in first["loc"]:
        if part == "[key]" or str(part) in _KINDS.values():  # the key itself is wrong, or what is no part of the path
            continue
        param += f"[{part}]" if isinstance(part, int) else f".{part[:64]}" if param else str(part)[:64]
    code = "missing_required_parameter" if first["type"] == "missing" else "invalid_value"
    return bad_request(f"{param}: {first['msg']}", param=param, code=code)
