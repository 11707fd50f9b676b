"""The refusal of a template that no innocent model has. Apart from the codec, whose imports take seconds."""

from swarm_core.errors import BadRequest


class TemplateHostile(BadRequest):
    """The template does what no template needs: it goes on for ever, grows without bound, or reaches out."""
