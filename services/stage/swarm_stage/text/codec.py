"""One model's text side: chat template, tokenizer, end tokens, sampling defaults. Runs nothing a model brings along."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2.exceptions import TemplateError
from swarm_core.errors import BadRequest, ServableCorrupt
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from swarm_stage.model.slice_config import whole_config

TOKENIZER_FOLDER = "tokenizer"
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


class TextCodec:
    """Text to token ids and back, for one model. Safe to use from several threads."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, config: Mapping[str, Any], generation: Mapping[str, Any]
    ) -> None:
        self._tokenizer: Any = tokenizer  # its annotations say "one or many" where we give and get one
        tokenizer("")  # drops a truncation tokenizer.json may carry; after that encoding changes nothing in it
        self._template = _template_text(tokenizer)
        added = tokenizer.added_tokens_decoder
        self.special_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        turn_ends = {token_id for token_id, token in added.items() if self._ends_a_turn(token.content)}
        eos_ids = (tokenizer.eos_token_id, config.get("eos_token_id"), generation.get("eos_token_id"))
        self.end_ids: frozenset[int] = frozenset(turn_ends.union(*map(_ids_of, eos_ids)))
        self.default_sampling: dict[str, float | int] = _sampling_defaults(generation)

    def chat_ids(self, messages: Sequence[Mapping[str, str]], enable_thinking: bool | None = None) -> list[int]:
        """The conversation through the model's chat template, ready for the reply.

        messages: role and content each. enable_thinking reaches the template when it is not None.
        Raises BadRequest with the template's own words when it refuses, or when the model has no template.
        """
        if not self._template:
            raise BadRequest("this model has no chat template; send a plain prompt", field="messages")
        extra: dict[str, Any] = {} if enable_thinking is None else {"enable_thinking": enable_thinking}
        try:
            return list(
                self._tokenizer.apply_chat_template(
                    [dict(message) for message in messages],
                    tokenize=True,
                    add_generation_prompt=True,
                    return_dict=False,
                    **extra,
                )
            )
        except (TemplateError, TypeError, ValueError, KeyError, ArithmeticError, RecursionError) as error:
            raise BadRequest(f"the model's chat template refuses this: {error}", field="messages") from error

    def prompt_ids(self, text: str) -> list[int]:
        """Plain text to ids, with the tokens the model expects at the start of any text."""
        return list(self._tokenizer(text)["input_ids"])

    def decode(self, ids: Sequence[int]) -> str:
        """The text of all ids together, special ones left out, spaces as they are."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def _ends_a_turn(self, token: str) -> bool:
        return token in _TURN_ENDS and token in self._template


def _template_text(tokenizer: PreTrainedTokenizerBase) -> str:
    """The default chat template; empty without one."""
    template = tokenizer.chat_template
    if isinstance(template, Mapping):
        template = template.get("default")
    return template or ""


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
