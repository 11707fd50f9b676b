"""Writes docs/configuration.md from the config classes. `--check` compares instead of writing."""

import argparse
import dataclasses
import importlib
import inspect
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "configuration.md"
SERVICES = {
    "swarm_leader": "The leader (`swarm-leader`)",
    "swarm_gateway": "The gateway (`swarm-gateway`)",
    "swarm_fellow": "The fellow (`swarm-fellow`)",
    "swarm_stage": "The stage (`swarm-stage`, started by its fellow)",
    "swarm_cli": "The command line (`swarm`)",
}
HEAD = """# Configuration

Every process reads environment variables when it starts, and options on its command line win over them. Unset, or set
to nothing, means the default. Switches take 1 or 0. A value that cannot be read stops the process at once, with the
name of the variable.

This page is written by `scripts/generate_configuration.py` from the config class of each service; a test compares them.
"""


def config_classes(package: str) -> list[type]:
    """Dataclasses of a service's config.py that read a variable, in the order they are written."""
    try:
        module = importlib.import_module(f"{package}.config")
    except ModuleNotFoundError:
        return []
    own = [item for item in vars(module).values() if inspect.isclass(item) and item.__module__ == module.__name__]
    return [item for item in own if dataclasses.is_dataclass(item) and _fields(item)]


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for package, title in SERVICES.items():
        fields = {field.metadata["variable"]: field for item in config_classes(package) for field in _fields(item)}
        if fields:
            parts.append(f"\n## {title}\n\n| variable | default | meaning |\n|---|---|---|\n")
            parts += [_row(field) for field in fields.values()]
    return "".join(parts)


def _fields(config: type) -> list[dataclasses.Field]:
    return [field for field in dataclasses.fields(config) if "variable" in field.metadata]


def _row(field: dataclasses.Field) -> str:
    meaning = field.metadata["meaning"].replace("|", "\\|")
    return f"| `{field.metadata['variable']}` | {_default_text(field.default)} | {meaning} |\n"


def _default_text(default: object) -> str:
    if isinstance(default, bool):
        return "1" if default else "0"
    text = str(default)
    home = str(Path.home())
    if isinstance(default, Path) and text.startswith(home):
        text = "~" + text.removeprefix(home)
    return f"`{text}`" if text not in ("", ".") else "unset"


def main() -> None:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with what is committed; exit 1 on a difference")
    if parser.parse_args().check:
        is_current = PAGE.exists() and PAGE.read_text() == page()
        sys.exit(0 if is_current else f"docs/configuration.md is not of this code; run {Path(__file__).name}")
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
