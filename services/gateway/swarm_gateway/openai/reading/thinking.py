"""Whether a model thinks before it answers, as chat and responses are told it. Pure."""

from typing import Literal

from swarm_gateway.openai.reading.fields import Strict

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
_NO_THINKING = ("none", "minimal")


class TemplateArguments(Strict):
    """Arguments of the model's chat template; others than these are not passed on."""

    enable_thinking: bool | None = None


def wants_thinking(arguments: TemplateArguments | None, effort: Effort | None) -> bool | None:
    """What is asked for, the template's argument before the effort; None leaves it to the model."""
    if arguments is not None and arguments.enable_thinking is not None:
        return arguments.enable_thinking
    return False if effort in _NO_THINKING else None
