"""What a servable may say beyond its tensors: where training cut it, what an adapter is of. Plain facts."""

from dataclasses import dataclass

INT4 = "int4"
CODECS = ("int8", INT4)  # of a boundary between stages, as training and serving know them
ADAPTER_CONFIG_NAME = "adapter_config.json"
LORA_RANK_MAX = 512  # beyond it an adapter is as large as what it adapts
LORA, DORA = "lora", "dora"
VARIANTS = (LORA, DORA)


@dataclass(frozen=True)
class TrainingSplit:
    """Where training cut a model.

    layer_starts: first layer of every shard, the first is 0. recorded: the servable says so itself; else they were read
    off the shards and it is served over their number alone. codecs: how the boundary behind each shard but the last was
    coded, "" not at all.
    """

    layer_starts: tuple[int, ...]
    recorded: bool
    codecs: tuple[str, ...] = ()

    @property
    def stage_count(self) -> int:
        """Stages of training."""
        return len(self.layer_starts)

    def codec_before(self, layer: int) -> str:
        """How training coded what enters this layer; "" not at all, or no boundary there."""
        if layer in self.layer_starts[1:] and self.codecs:
            return self.codecs[self.layer_starts.index(layer) - 1]
        return ""


@dataclass(frozen=True)
class AdapterOf:
    """What a LoRA adapter changes. The manifest's tensors are then A and B of each module, named as the base's with
    ".lora_A.weight" and ".lora_B.weight" in place of ".weight"; in a DoRA also its ".lora_magnitude_vector".

    rank: the largest of its modules. scale: what B A is multiplied by, before scales. scales: (module path, scale) of
    the modules that differ ("model.layers.3.self_attn.q_proj").
    """

    base_model_id: str
    rank: int
    targets: tuple[str, ...]
    scale: float
    scales: tuple[tuple[str, float], ...] = ()
    variant: str = LORA  # "dora" and others are left to peft, and refused where it is not used


@dataclass(frozen=True)
class HubOrigin:
    """Where fellows fetch the weights themselves: a commit of a hub repository. endpoint "": the hub's own.

    The `file` of each tensor is then that file's name in the repository, `begin` the position in it.
    """

    repository: str
    commit: str
    endpoint: str = ""
