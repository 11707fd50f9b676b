"""What shape a reply must have: OpenAI's response_format, and what other servers have for it. Compiles nothing."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field
from silentswarm.core.v1 import generation_pb2

from swarm_gateway.openai.reading.documents import read_document
from swarm_gateway.openai.reading.fields import Name, Schema, SchemaOrText, Strict, wrong
from swarm_gateway.openai.reading.tools import check_schema_size, compact
from swarm_gateway.problems import HttpProblem

REGEX_CHARACTERS_MAX = 16 * 2**10
GRAMMAR_CHARACTERS_MAX = 64 * 2**10
TEXTS_MAX = 1024
Text = Annotated[str, Field(min_length=1, max_length=4096)]
Regex = Annotated[str, Field(min_length=1, max_length=REGEX_CHARACTERS_MAX)]
Grammar = Annotated[str, Field(min_length=1, max_length=GRAMMAR_CHARACTERS_MAX)]
Texts = Annotated[list[Text], Field(min_length=1, max_length=TEXTS_MAX)]
Constraint = generation_pb2.Constraint


class NamedSchema(Strict):
    """A schema with its name."""

    name: Name
    description: str | None = None
    schema_: Annotated[Schema, Field(alias="schema")]
    strict: bool | None = None


class ResponseFormat(Strict):
    """OpenAI's way to say it."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None


class StructuredOutputs(Strict):
    """vLLM's way to say it; one of these."""

    json_: Annotated[SchemaOrText | None, Field(alias="json")] = None
    regex: Regex | None = None
    choice: Texts | None = None
    grammar: Grammar | None = None
    json_object: bool | None = None


class ConstraintFields(Strict):
    """All of them; at most one may ask for anything."""

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: SchemaOrText | None = None
    guided_regex: Regex | None = None
    guided_choice: Texts | None = None
    guided_grammar: Grammar | None = None


@dataclass(frozen=True)
class Shape:
    """What is asked for, and by which field."""

    constraint: generation_pb2.Constraint
    param: str


def shape_of(fields: ConstraintFields) -> Shape | None:
    """The one shape that is asked for, None when none is. Raises HttpProblem when there are several."""
    asked = [Shape(made, param) for param, made in _each(fields) if made is not None]
    if len(asked) > 1:
        raise wrong(asked[1].param, f"{asked[0].param} asks for another shape already")
    return asked[0] if asked else None


def of_schema(param: str, schema: Schema | str, strict: bool | None) -> generation_pb2.Constraint:
    """A schema, as an object or as JSON. Raises HttpProblem when it is too large."""
    text = schema if isinstance(schema, str) else compact(schema)
    check_schema_size(param, text)
    if isinstance(schema, str):
        try:
            read_document(schema.encode())
        except HttpProblem as problem:
            raise wrong(param, str(problem).replace("the body", "the schema")) from None
    return Constraint(json_schema=text, strict=bool(strict))


def _each(fields: ConstraintFields) -> list[tuple[str, generation_pb2.Constraint | None]]:
    outputs = fields.structured_outputs or StructuredOutputs()
    guided = StructuredOutputs.model_construct(
        json_=fields.guided_json,
        regex=fields.guided_regex,
        choice=fields.guided_choice,
        grammar=fields.guided_grammar,
        json_object=None,
    )
    return [
        ("response_format", _of_format(fields.response_format)),
        *_of_outputs("structured_outputs.", outputs),
        *_of_outputs("guided_", guided),
    ]


def _of_format(given: ResponseFormat | None) -> generation_pb2.Constraint | None:
    if given is None or given.type == "text":
        return None
    if given.type == "json_object":
        return Constraint(json_object=Constraint.JsonObject())
    if given.json_schema is None:
        raise wrong("response_format.json_schema", "is missing")
    return of_schema("response_format.json_schema.schema", given.json_schema.schema_, given.json_schema.strict)


def _of_outputs(at: str, given: StructuredOutputs) -> list[tuple[str, generation_pb2.Constraint | None]]:
    made: list[tuple[str, Any]] = []
    if given.json_ is not None:
        made.append(("json", of_schema(f"{at}json", given.json_, strict=False)))
    if given.regex is not None:
        made.append(("regex", Constraint(regex=given.regex)))
    if given.choice is not None:
        made.append(("choice", Constraint(choices=Constraint.Choices(texts=given.choice))))
    if given.grammar is not None:
        made.append(("grammar", Constraint(grammar=given.grammar)))
    if given.json_object:
        made.append(("json_object", Constraint(json_object=Constraint.JsonObject())))
    return [(at + name, constraint) for name, constraint in made]
