"""One model's text side: chat template, tokenizer, end tokens, sampling defaults. Runs nothing a model brings along.

Its template is rendered in another process, which is killed when it does not end.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from silentswarm.core.v1 import generation_pb2
from swarm_core.errors import BadRequest, ServableCorrupt
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from swarm_stage.model.slice_config import whole_config
from swarm_stage.text.chat_messages import (
    template_messages,
    template_tools,
    with_short_ids,
    with_told_tools,
    without_system,
)
from swarm_stage.text.constraint import GrammarCompiler
from swarm_stage.text.hostile import TemplateHostile
from swarm_stage.text.reply_shape import CallFormat, ReplyShape, call_format, marks_of, reasoning_marks
from swarm_stage.text.token_bytes import token_bytes
from swarm_stage.text.typed_marks import BREAK, TypedMarks
from swarm_stage.text.workroom import TaskKilled, TaskRefused, Workrooms

TOKENIZER_FOLDER = "tokenizer"
TOKENIZER_BYTES_MAX = 128 * 1024 * 1024  # of one file; the largest vocabularies of 260,000 tokens take 35 MB
RENDER_TIMEOUT_S = 5.0  # an ordinary conversation takes 1 ms
RENDERERS = 2  # a conversation that its template loops on holds up one of them
# Tokens that end a turn in the templates of the served families. One counts when the model's own template writes it.
_TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>", "<|END_OF_TURN_TOKEN|>")
_SAMPLING_DEFAULTS: dict[str, type] = {"temperature": float, "top_p": float, "top_k": int, "min_p": float}
_SAMPLING_RANGES = {"temperature": (0, 100), "top_p": (1e-9, 1), "top_k": (0, 2**31), "min_p": (0, 1)}


def load_text_codec(model_dir: str | Path) -> "TextCodec | None":
    """The codec of the model in `model_dir` (tokenizer/, config.json, generation_config.json); None without tokenizer/.

    Blocks for about a second. Raises ServableCorrupt when the files are there and cannot be used.
    """
    folder = Path(model_dir) / TOKENIZER_FOLDER
    if not folder.is_dir():
        return None
    for path in folder.iterdir():
        if path.is_file() and path.stat().st_size > TOKENIZER_BYTES_MAX:
            raise ServableCorrupt(
                f"{path.name} has {path.stat().st_size:,} bytes; at most {TOKENIZER_BYTES_MAX:,} are read"
            )
    config = _read_json(Path(model_dir) / "config.json")
    generation = _read_json(Path(model_dir) / "generation_config.json")
    tokenizer_config = _read_json(folder / "tokenizer_config.json")
    if "auto_map" in tokenizer_config:
        raise ServableCorrupt("tokenizer_config.json asks for code of its own (auto_map), which is never run")
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            folder,
            config=whole_config(config),
            trust_remote_code=False,
            local_files_only=True,
        )
    except Exception as error:  # whatever broken files provoke in parsers written elsewhere
        raise ServableCorrupt(f"the tokenizer of this model cannot be loaded: {error}") from error
    return TextCodec(tokenizer, config, generation)


@dataclass(frozen=True)
class ChatPrompt:
    """A conversation ready for its reply."""

    ids: list[int]
    shape: ReplyShape


class TextCodec:
    """Text to token ids and back, for one model. Safe to use from several threads."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, config: Mapping[str, Any], generation: Mapping[str, Any]
    ) -> None:
        self._tokenizer: Any = tokenizer  # its annotations say "one or many" where we give and get one
        tokenizer("")  # drops a truncation tokenizer.json may carry; after that encoding changes nothing in it
        self._templates = _template_texts(tokenizer)
        self._rooms = Workrooms(RENDERERS)
        added = {token_id: str(token) for token_id, token in tokenizer.added_tokens_decoder.items()}
        special = tokenizer.added_tokens_decoder
        self.special_ids = frozenset(token_id for token_id, token in special.items() if token.special)
        self._added = added
        turn_ends = {token_id for token_id, token in added.items() if self._ends_a_turn(token)}
        eos_ids = (tokenizer.eos_token_id, config.get("eos_token_id"), generation.get("eos_token_id"))
        self.end_ids: frozenset[int] = frozenset(turn_ends.union(*map(_ids_of, eos_ids)))
        self.default_sampling: dict[str, float | int] = _sampling_defaults(generation)
        self._reasoning = reasoning_marks(self._template, frozenset(added.values()))
        self._calls = call_format(self._templates.get("tool_use", self._template))
        self._typed = TypedMarks(self._marks(), self._tokenizer_json)

    def chat_prompt(self, chat: generation_pb2.Chat) -> ChatPrompt:
        """The conversation through the model's chat template, and how the reply to it is to be read.

        Marks in what people wrote are text. Tools are told in words where the template does not know them.
        Raises BadRequest with the template's own words when it refuses, or when the model has no template.
        """
        kept = frozenset((self._reasoning.open, self._reasoning.close)) if self._reasoning else frozenset()
        # What an assistant said may hold reasoning, which templates cut out by its marks.
        messages = [
            self._typed.broken(message, kept if message["role"] == "assistant" else frozenset())
            for message in template_messages(chat)
        ]
        tools = self._typed.broken(template_tools(chat))
        thinking = chat.enable_thinking if chat.HasField("enable_thinking") else None
        text = self._rendered(messages, tools, thinking)
        return ChatPrompt(self._rendered_ids(text), self._shape(chat, text))

    def prompt_ids(self, text: str) -> list[int]:
        """Plain text to ids, with the tokens the model expects at the start of any text."""
        return list(self._tokenizer(text)["input_ids"])

    def decode(self, ids: Sequence[int]) -> str:
        """The text of all ids together, special ones left out, spaces as they are."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)

    @cached_property
    def token_bytes(self) -> list[bytes]:
        """What each token is as bytes, by id; special ones by name."""
        pieces = self._tokenizer.convert_ids_to_tokens(list(range(len(self._tokenizer))))
        return token_bytes(pieces, self._added, json.loads(self._tokenizer_json()).get("decoder"))

    @cached_property
    def grammar_compiler(self) -> GrammarCompiler:
        """What makes constraints for this model's tokens. Blocks for a moment the first time."""
        tokens = self.token_bytes
        return GrammarCompiler(tokens, self.special_ids, [token for token in self.end_ids if token < len(tokens)])

    def special_marks(self, shape: ReplyShape) -> dict[int, str]:
        """Those marks of a reply that are special tokens, by id: they are no text, and still to be read."""
        marks = marks_of(shape)
        return {token: self._added[token] for token in self.special_ids if self._added[token] in marks}

    def close(self) -> None:
        """End the processes that render."""
        self._rooms.close()

    @property
    def _template(self) -> str:
        return self._templates.get("default", "")

    def _shape(self, chat: generation_pb2.Chat, text: str) -> ReplyShape:
        ending = text.rstrip()
        marks = self._reasoning
        is_reasoning = marks is not None and ending.endswith(marks.open)
        tools = frozenset(tool["function"]["name"] for tool in template_tools(chat))
        is_single = "single tool-calls" in self._template  # Llama's template takes no second call back
        parallel = chat.parallel_tool_calls if chat.HasField("parallel_tool_calls") else True
        return ReplyShape(
            reasoning=marks,
            is_reasoning=is_reasoning,
            may_reason=marks is not None and not is_reasoning and not ending.endswith(marks.close),
            calls=(self._calls or CallFormat.HERMES) if tools else None,
            tools=tools,
            calls_max=1 if is_single or not parallel else 0,
        )

    def _rendered(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], enable_thinking: bool | None
    ) -> str:
        """The conversation with its tools, as this template takes them."""
        if self._calls in (CallFormat.MISTRAL_LIST, CallFormat.MISTRAL_ARGS):
            messages = with_short_ids(messages)
        has_calls = any("tool_calls" in message or message["role"] == "tool" for message in messages)
        if self._calls is not None or not (tools or has_calls):
            return self._render(messages, tools, enable_thinking)
        told = with_told_tools(messages, tools)
        try:
            return self._render(told, [], enable_thinking)
        except TemplateHostile:
            raise
        except BadRequest:
            if not tools or (asked := without_system(told)) == told:
                raise
            return self._render(asked, [], enable_thinking)

    def _render(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], enable_thinking: bool | None
    ) -> str:
        template = self._templates.get("tool_use" if tools and "tool_use" in self._templates else "default")
        if not template:
            raise BadRequest("this model has no chat template; send a plain prompt", field="messages")
        values = {
            **self._tokenizer.special_tokens_map,
            "messages": [dict(message) for message in messages],
            "tools": list(tools) or None,
            "documents": None,
            "add_generation_prompt": True,
            **({} if enable_thinking is None else {"enable_thinking": enable_thinking}),
        }
        try:
            task = {"do": "render", "template": template, "values": values}
            return self._rooms.ask(task, RENDER_TIMEOUT_S)["text"]
        except (TaskRefused, TaskKilled) as refusal:
            is_hostile = isinstance(refusal, TaskKilled) or refusal.is_hostile
            kind = TemplateHostile if is_hostile else BadRequest
            raise kind(f"the model's chat template refuses this: {refusal}", field="messages") from None

    def _rendered_ids(self, text: str) -> list[int]:
        if BREAK in text:
            return self._typed.encode(text)
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _tokenizer_json(self) -> str:
        """The tokenizer as tokenizer.json describes it. Raises BadRequest for the few kinds that have no such form."""
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise BadRequest("this model's tokenizer is of a kind that cannot do this")
        return backend.to_str()

    def _marks(self) -> dict[str, int]:
        """Tokens that mean something beyond their text: special ones, and those the templates themselves write."""
        written = "".join(self._templates.values())
        return {
            name: token
            for token, name in self._added.items()
            if token in self.special_ids or (name in written and not name.isspace() and not name.isalnum())
        }

    def _ends_a_turn(self, token: str) -> bool:
        return token in _TURN_ENDS and token in self._template


def _template_texts(tokenizer: PreTrainedTokenizerBase) -> dict[str, str]:
    """The chat templates by name; the one without a name is "default"."""
    template = tokenizer.chat_template
    if isinstance(template, Mapping):
        return {str(name): text for name, text in template.items() if isinstance(text, str)}
    return {"default": template} if template else {}


def _ids_of(ids: Any) -> Iterable[int]:
    """End tokens as configs write them: one id, a list of ids, or nothing."""
    listed = ids if isinstance(ids, list) else [ids]
    return {token_id for token_id in listed if isinstance(token_id, int) and not isinstance(token_id, bool)}


def _sampling_defaults(generation: Mapping[str, Any]) -> dict[str, float | int]:
    """How the model's authors want it sampled; empty when they do not sample."""
    if generation.get("do_sample") is not True:
        return {}
    defaults = {
        name: kind(generation[name])
        for name, kind in _SAMPLING_DEFAULTS.items()
        if isinstance(generation.get(name), int | float) and not isinstance(generation[name], bool)
    }
    if defaults.get("top_k", 0) < 0:  # as some write "all"
        defaults["top_k"] = 0
    for name, (least, most) in _SAMPLING_RANGES.items():
        if name in defaults and not least <= defaults[name] <= most:  # NaN is in no range
            raise ServableCorrupt(f"generation_config.json: {name} is {defaults[name]}, not within {least} to {most}")
    return defaults


def _read_json(path: Path) -> dict[str, Any]:
    """An object from a file; empty when there is no file. Raises ServableCorrupt."""
    if not path.is_file():
        return {}
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ServableCorrupt(f"{path.name} cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise ServableCorrupt(f"{path.name} is not an object")
    return document
