"""One stage's slice of a decoder, made of transformers' own modules and run position by position. No sessions, no wire.

Tensors wear shapes: B batch (1 here), T positions, D hidden size, V vocabulary.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from swarm_core.errors import BadFrame, BadRequest, ContextTooLong
from swarm_core.quantization import NONE
from swarm_core.slices import LayerRange
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast

from swarm_stage.model.adapters.choice import BASE, AdapterChoice
from swarm_stage.model.carrier import Carrier
from swarm_stage.model.devices import Spread
from swarm_stage.model.kv_cache import KvCache, SessionCache
from swarm_stage.model.quantized.quantized_weight import Change, replace_held


class SliceModel:
    """The layers of one stage; the first stage also embeds, the last also has the final norm and the head.

    Not thread-safe: one thread runs it. What comes in goes to the slice's first device, every result is an inference
    tensor on its last.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        layers: LayerRange,
        dtype: torch.dtype,
        spread: Spread,
        longest_tokens: int | None = None,
        adapters: AdapterChoice | None = None,
    ) -> None:
        """model: a filled CausalLM of the slice, its parts on the devices of spread. longest_tokens: positions it is
        exact for; None is not limited. adapters: those that stand beside its weights; None is none.
        """
        self.layers = layers
        self.dtype = dtype
        self.device = torch.device(spread.first)
        self.spread = spread
        self.context_tokens_max = longest_tokens
        self._adapters = adapters
        self._config: Any = model.config
        self._decoder: Any = model.model
        self._carrier = Carrier() if len(spread.devices) > 1 else None
        if self._carrier is not None:
            for index, layer in enumerate(self._decoder.layers):
                self._carrier.deliver_to(layer, torch.device(spread.device_of_layer(index)))
        self._run_weight_bytes = [0] * len(spread.runs)
        for name, parameter in model.named_parameters():
            self._run_weight_bytes[spread.run_of(name)] += parameter.nbytes
        # What a family does to its logits (soft caps, scales) stays in transformers' own forward, which is handed the
        # hidden state in place of a decoder.
        model.model = _HiddenStateAsOutput()
        self._head: nn.Module | None = model if layers.is_last else None

    batches = False  # whether run_batch reads the weights once for all sessions
    quantization: str = NONE  # how linear layers are held after all, one of METHODS
    notes: tuple[str, ...] = ()  # what the load decided, for people

    @property
    def hidden_size(self) -> int:
        """Width of the hidden state."""
        return self._config.hidden_size

    @property
    def vocabulary_size(self) -> int:
        """Token ids are below it."""
        return self._config.vocab_size

    @property
    def layer_count(self) -> int:
        """Layers of this slice."""
        return self._config.num_hidden_layers

    @property
    def weight_bytes(self) -> int:
        """Bytes of the parameters held; a head tied to embeddings held here counts once."""
        return sum(self._run_weight_bytes)

    @property
    def run_weight_bytes(self) -> tuple[int, ...]:
        """Bytes of the parameters of each run of the spread, in its order."""
        return tuple(self._run_weight_bytes)

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes one position takes in the KV caches of this slice."""
        return self._config.num_hidden_layers * self.layer_kv_bytes_per_token

    @property
    def layer_kv_bytes_per_token(self) -> int:
        """Bytes one position takes in the KV cache of one layer."""
        config = self._config
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return 2 * config.num_key_value_heads * head_dim * self.dtype.itemsize

    @property
    def adapter_choices(self) -> Mapping[str, int]:
        """Adapters that sessions can choose beside the base: places by ids."""
        return self._adapters.choices if self._adapters else {}

    def adapter_place(self, model_id: str) -> int:
        """Where an adapter stands, for new_cache; "" is the base. Raises BadRequest for one that is not held."""
        return (self._adapters or AdapterChoice({})).place_of(model_id)

    def new_cache(self, reserved_tokens: int = 0, adapter: int = BASE) -> SessionCache:
        """An empty cache for one session of at most so many positions; 0 is not known. adapter: a place."""
        return KvCache(adapter)

    def replace_quantized(self, layer: int, change: Change) -> None:
        """Let a layer, counted from the start of the slice, hold what `change` makes of its quantised weights."""
        replace_held(self._decoder.layers[layer], change)

    @torch.inference_mode()
    def embed(self, ids: Sequence[int]) -> torch.Tensor:
        """Token ids to hidden_BTD. First stage only. Raises BadRequest for an id outside the vocabulary, or none."""
        assert self.layers.is_first, self.layers
        strangers = [token_id for token_id in ids if not 0 <= token_id < self.vocabulary_size]
        if strangers or not ids:
            wrong = f"token id {strangers[0]} is not below {self.vocabulary_size}" if strangers else "no token ids"
            raise BadRequest(wrong, field="prompt_ids")
        return self._embedded(torch.tensor(list(ids), dtype=torch.long, device=self.device))

    def _embedded(self, ids_T: torch.Tensor) -> torch.Tensor:
        """hidden_BTD of checked ids, one session."""
        return self._decoder.embed_tokens(ids_T[None])

    @torch.inference_mode()
    def run(self, hidden_BTD: torch.Tensor, cache: SessionCache, pos: int) -> torch.Tensor:
        """Run positions pos .. pos + T - 1 of one session; the last stage's final norm is included.

        What the cache holds from `pos` on is forgotten first, and again when this fails.
        Raises BadFrame for another shape or a position beyond the cache, ContextTooLong beyond context_tokens_max.
        """
        assert isinstance(cache, KvCache)
        self._check(hidden_BTD, cache, pos)
        cache.crop(pos)
        if self._adapters is not None:
            self._adapters.place = cache.adapter
        hidden_BTD = hidden_BTD.to(device=self.device, dtype=self.dtype)
        position_ids = torch.arange(pos, pos + hidden_BTD.shape[1], device=self.device).unsqueeze(0)
        try:
            return self._decoder(
                inputs_embeds=hidden_BTD, position_ids=position_ids, cache=cache.layers, use_cache=True
            ).last_hidden_state
        except BaseException:
            cache.crop(pos)
            raise
        finally:
            if self._carrier is not None:
                self._carrier.forget()

    def run_batch(
        self, hidden_B1D: torch.Tensor, caches: Sequence[SessionCache], positions: Sequence[int]
    ) -> torch.Tensor:
        """One position of each session, hidden_B1D in and out; here one after another.

        Every cache holds exactly `positions` of its session. Raises what run raises; caches may then differ in length.
        """
        rows = zip(hidden_B1D, caches, positions, strict=True)
        return torch.cat([self.run(hidden_1D[None], cache, pos) for hidden_1D, cache, pos in rows])

    def logits_batch(self, hidden_BTD: torch.Tensor) -> torch.Tensor:
        """logits_BV of the last position of each session, float32. Last stage only."""
        return torch.stack([self.logits(hidden_TD[None]) for hidden_TD in hidden_BTD])

    @torch.inference_mode()
    def logits(self, hidden_BTD: torch.Tensor) -> torch.Tensor:
        """logits_V of the last position of what `run` gave, float32. Last stage only."""
        assert self._head is not None, self.layers
        hidden_B1D = hidden_BTD[:, -1:]
        return self._head(inputs_embeds=hidden_B1D, use_cache=False, logits_to_keep=1).logits[0, -1].float()

    def _check(self, hidden_BTD: torch.Tensor, cache: SessionCache, pos: int) -> None:
        shape = tuple(hidden_BTD.shape)
        if len(shape) != 3 or shape[0] != 1 or shape[1] < 1 or shape[2] != self.hidden_size:
            raise BadFrame(f"hidden state has shape {list(shape)}, not [1, T, {self.hidden_size}]")
        if not 0 <= pos <= cache.length:
            raise BadFrame(f"position {pos} does not follow the {cache.length} held", pos=pos, held=cache.length)
        stop = pos + shape[1]
        if self.context_tokens_max is not None and stop > self.context_tokens_max:
            raise ContextTooLong(
                f"position {stop} is beyond the model's {self.context_tokens_max} tokens",
                needed_tokens=stop,
                budget_tokens=self.context_tokens_max,
            )


class _HiddenStateAsOutput(nn.Module):
    """Stands where the decoder was, so that a CausalLM's forward is its head alone."""

    def forward(self, inputs_embeds: torch.Tensor, **_: Any) -> BaseModelOutputWithPast:
        return BaseModelOutputWithPast(last_hidden_state=inputs_embeds)
