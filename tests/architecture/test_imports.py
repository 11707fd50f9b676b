"""Who may import what: torch stays in the stage, services meet only in libs, decisions stay free of I/O."""

import subprocess
import sys

import pytest

from tests.architecture.code_tree import LIBS, SERVICES, Module, imports_of, product_modules, tool_modules

TORCH_LIKE = {"torch", "transformers", "torchao", "bitsandbytes", "peft"}
TORCH_FREE = ("swarm_leader", "swarm_gateway", "swarm_fellow", "swarm_cli")
OWN = set(SERVICES) | set(LIBS) | {"silentswarm"}

IMPORT_WITHOUT_TORCH = f"""
import importlib, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {TORCH_LIKE!r}:
            raise ImportError(f"{{name}} is the stage's alone")
sys.meta_path.insert(0, Refuse())
for module in sys.argv[1:]:
    importlib.import_module(module)
"""


def is_migration(module: Module) -> bool:
    """A script of alembic: its env.py, or a version."""
    return module.path.name == "env.py" or "versions" in module.path.parts


def top_level(names: set[str]) -> set[str]:
    """The packages of dotted names."""
    return {name.partition(".")[0] for name in names}


def offenders(modules: list[Module], is_wrong) -> list[str]:
    """ "path imports name" for every import that is wrong."""
    return [f"{module.shown} imports {name}" for module in modules for name in imports_of(module) if is_wrong(name)]


def test_only_the_stage_imports_torch():
    others = [module for module in product_modules() if module.package != "swarm_stage"]

    assert offenders(others, lambda name: name.partition(".")[0] in TORCH_LIKE) == []


@pytest.mark.parametrize("package", TORCH_FREE)
def test_a_process_starts_where_torch_is_not_installed(package: str):
    # alembic runs its scripts itself, with what it puts into them; importing one does nothing but fail.
    modules = [module.name for module in product_modules() if module.package == package and not is_migration(module)]
    command = [sys.executable, "-c", IMPORT_WITHOUT_TORCH, *modules]
    started = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert f"{package}.__main__" in modules
    assert started.returncode == 0, started.stderr


@pytest.mark.parametrize("package", sorted(SERVICES))
def test_a_service_imports_libs_and_never_another_service(package: str):
    modules = [module for module in product_modules() if module.package == package]
    foreign = set(SERVICES) - {package}

    assert offenders(modules, lambda name: name.partition(".")[0] in foreign) == []


def test_libs_never_import_a_service():
    modules = [module for module in product_modules() if module.package in LIBS]

    assert offenders(modules, lambda name: name.partition(".")[0] in SERVICES) == []


def test_the_domain_imports_the_standard_library_and_swarm_core_only():
    wrong = []
    for module in product_modules():
        if ".domain" not in module.name:
            continue
        own_domain = module.name.partition(".domain")[0] + ".domain"
        wrong += [
            f"{module.shown} imports {name}"
            for name in imports_of(module)
            if not name.startswith((own_domain, "swarm_core")) and name.partition(".")[0] not in sys.stdlib_module_names
        ]

    assert wrong == []


@pytest.mark.parametrize(
    ("package", "allowed"),
    [
        ("swarm_core", {"structlog", "prometheus_client"}),
        ("swarm_wire", {"numpy", "swarm_core", "silentswarm"}),
        ("swarm_rpc", {"grpc", "grpc_health", "grpc_reflection", "grpc_status", "google", "structlog", "swarm_core"}),
    ],
)
def test_a_lib_imports_what_its_layer_allows(package: str, allowed: set[str]):
    allowed = allowed | {package, "silentswarm"} if package != "swarm_core" else allowed | {package}
    modules = [module for module in product_modules() if module.package == package]
    found = top_level({name for module in modules for name in imports_of(module)})

    assert found - allowed - set(sys.stdlib_module_names) == set()


def test_the_stage_engine_decides_without_torch():
    modules = [module for module in product_modules() if module.name.startswith("swarm_stage.engine")]

    assert offenders(modules, lambda name: name.partition(".")[0] in TORCH_LIKE) == []


def test_nothing_imports_the_program_of_a_stage():
    """Its first lines put the whole process off the net; a test that did so put off every test behind it."""
    modules = [*product_modules(), *tool_modules()]
    programs = ("swarm_stage.__main__", "swarm_stage.convert.__main__")
    wrong = [module.shown for module in modules for name in imports_of(module) if name.startswith(programs)]

    assert wrong == []


def test_no_modules_import_each_other_in_a_circle():
    names = {module.name for module in product_modules()}
    edges = {
        module.name: {name for name in imports_of(module, at_import_only=True) if name in names} - {module.name}
        for module in product_modules()
    }

    assert find_circle(edges) == []


def test_a_circle_is_found_when_there_is_one():
    assert find_circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == ["a", "b", "c", "a"]
    assert find_circle({"a": {"b"}, "b": {"c"}, "c": set()}) == []


def find_circle(edges: dict[str, set[str]]) -> list[str]:
    """One circle, as the way round it; empty when there is none."""
    done: set[str] = set()

    def walk(name: str, way: list[str]) -> list[str]:
        if name in way:
            return [*way[way.index(name) :], name]
        if name in done:
            return []
        for following in sorted(edges[name]):
            if circle := walk(following, [*way, name]):
                return circle
        done.add(name)
        return []

    for name in sorted(edges):
        if circle := walk(name, []):
            return circle
    return []
