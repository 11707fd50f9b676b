"""What code may never do: unpickle, evaluate text, trust a checkpoint, read the environment, swallow a cancellation."""

import ast

from tests.architecture.code_tree import ROOT, dotted, imports_of, product_modules, tool_modules

UNPICKLING = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
UNPICKLING_CALLS = {"torch.load", "torch.save", "numpy.load", "np.load"}


def test_nothing_unpickles():
    wrong = [
        f"{module.shown} imports {name}"
        for module in product_modules()
        for name in imports_of(module)
        if name.partition(".")[0] in UNPICKLING
    ]
    wrong += [
        f"{module.shown}:{node.lineno} calls {dotted(node.func)}"
        for module in product_modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and dotted(node.func) in UNPICKLING_CALLS
    ]

    assert wrong == []


def test_nothing_evaluates_text():
    wrong = [
        f"{module.shown}:{node.lineno} calls {dotted(node.func)}"
        for module in product_modules() + tool_modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and dotted(node.func) in {"eval", "exec", "builtins.eval", "builtins.exec"}
    ]

    assert wrong == []


def test_nothing_trusts_the_code_of_a_checkpoint():
    wrong = [
        f"{module.shown}:{node.value.lineno}"
        for module in product_modules() + tool_modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.keyword) and node.arg == "trust_remote_code" and not is_false(node.value)
    ]

    assert wrong == []


def test_no_subprocess_goes_through_a_shell():
    wrong = [
        f"{module.shown}:{node.lineno}"
        for module in product_modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and (
            dotted(node.func) in {"os.system", "os.popen", "asyncio.create_subprocess_shell"}
            or any(keyword.arg == "shell" and not is_false(keyword.value) for keyword in node.keywords)
        )
    ]

    assert wrong == []


def test_no_wait_swallows_a_cancellation():
    """asyncio.wait_for of Python 3.11 returns the result of what ends as its own task is cancelled: use timeout."""
    wrong = [
        f"{module.shown}:{node.lineno}"
        for module in product_modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and dotted(node) == "asyncio.wait_for"
    ]

    assert wrong == []


def test_only_a_main_module_reads_the_environment():
    wrong = [
        f"{module.shown}:{node.lineno}"
        for module in product_modules()
        if module.path.name != "__main__.py"
        for node in ast.walk(module.tree)
        if (isinstance(node, ast.Attribute) and dotted(node) in {"os.environ", "os.getenv", "os.environb"})
        or (isinstance(node, ast.ImportFrom) and node.module == "os" and {"environ", "getenv"} & imported(node))
    ]

    assert wrong == []


def test_main_modules_are_the_only_way_in():
    """Every console script of pyproject.toml is the main() of a __main__ module."""
    scripts = (ROOT / "pyproject.toml").read_text().partition("[project.scripts]")[2].partition("\n[")[0]
    targets = [line.partition("=")[2].strip().strip('"') for line in scripts.splitlines() if "=" in line]

    assert targets
    assert all(target.endswith(".__main__:main") for target in targets)


def is_false(node: ast.expr) -> bool:
    """A literal False."""
    return isinstance(node, ast.Constant) and node.value is False


def imported(node: ast.ImportFrom) -> set[str]:
    """The names an import statement takes."""
    return {alias.name for alias in node.names}
