"""The chat page's document, rendered once. It holds nothing of anyone, so everybody gets the same bytes."""

import hashlib
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined

from swarm_gateway.web.assets import VERSION_CHARS, Assets


def render_page(assets: Assets) -> bytes:
    """The document, UTF-8. Its links are relative: a proxy may serve it under any path."""
    folder = files("swarm_gateway.web") / "templates"
    environment = Environment(
        loader=FunctionLoader(lambda name: (folder / name).read_text("utf-8")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    modules = [path for path in assets.files if path.endswith(".js")]
    template = environment.get_template("chat.html")
    return template.render(static=f"static/{assets.version}", modules=modules).encode()


def etag_of(document: bytes) -> str:
    """Names these bytes, without quotes."""
    return hashlib.sha256(document).hexdigest()[:VERSION_CHARS]
