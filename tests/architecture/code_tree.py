"""The repository's own Python as syntax trees: modules, imports, functions. Reads source, imports nothing."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SERVICES = {path.name: path for path in sorted(ROOT.glob("services/*/swarm_*")) if path.is_dir()}
LIBS = {path.name: path for path in sorted(ROOT.glob("libs/swarm_*")) if path.is_dir()}
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One source file. name: dotted, as it is imported ("swarm_cli.up.plan"); a test's is its path."""

    name: str
    path: Path
    source: str
    tree: ast.Module

    @property
    def package(self) -> str:
        """The top-level package."""
        return self.name.partition(".")[0]

    @property
    def shown(self) -> str:
        """The path, for people."""
        return str(self.path.relative_to(ROOT))


@cache
def product_modules() -> tuple[Module, ...]:
    """Every module of services/ and libs/, generated code left out."""
    return tuple(module for base in (*SERVICES.values(), *LIBS.values()) for module in _modules(base, base.parent))


@cache
def tool_modules() -> tuple[Module, ...]:
    """Every module of tests/ and scripts/."""
    return tuple(module for name in ("tests", "scripts") for module in _modules(ROOT / name, ROOT))


def imports_of(module: Module, at_import_only: bool = False) -> Iterator[str]:
    """Dotted names a module imports; `from a import b` gives both "a" and "a.b".

    at_import_only: leave out what functions import when they run, and what only type checkers see.
    """
    nodes = _import_time_nodes(module.tree) if at_import_only else ast.walk(module.tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(module, node)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def functions_of(module: Module) -> Iterator[Function]:
    """Every function, methods and inner ones included."""
    return (node for node in ast.walk(module.tree) if isinstance(node, Function))


def dotted(node: ast.AST) -> str:
    """ "os.environ" for an attribute chain; "" for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def _modules(folder: Path, import_root: Path) -> Iterator[Module]:
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(import_root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        source = path.read_text()
        yield Module(name, path, source, ast.parse(source, str(path)))


def _import_time_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        is_for_checkers = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        if isinstance(node, Function) or is_for_checkers:
            continue
        yield node
        yield from _import_time_nodes(node)


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    is_package = module.path.name == "__init__.py"
    base = module.name.split(".")
    base = base[: len(base) - node.level + (1 if is_package else 0)]
    return ".".join([*base, node.module] if node.module else base)
