"""How code is cut and named: sizes, docstrings, names, and tests that assert something."""

import ast
import re

from tests.architecture.code_tree import Function, Module, dotted, functions_of, product_modules, tool_modules

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
BANNED_WORDS = {"util", "utils", "common", "helper", "helpers", "manager", "managers"}


def every_module() -> tuple[Module, ...]:
    """Ours, generated code left out."""
    return product_modules() + tool_modules()


def test_no_file_is_longer_than_500_lines():
    long = {module.shown: module.source.count("\n") for module in every_module()}

    assert {shown: lines for shown, lines in long.items() if lines > FILE_LINES_MAX} == {}


def test_no_function_is_longer_than_70_lines():
    long = [
        f"{module.shown}:{function.lineno} {function.name} has {length_of(function)} lines"
        for module in every_module()
        for function in functions_of(module)
        if length_of(function) > FUNCTION_LINES_MAX
    ]

    assert long == []


def test_every_module_says_what_it_does():
    assert [module.shown for module in every_module() if not ast.get_docstring(module.tree)] == []


def test_every_public_class_and_function_of_the_product_has_a_docstring():
    """Implementations of a Protocol or an override say it once, in the Protocol; methods are left to review."""
    silent = [
        f"{module.shown}:{node.lineno} {node.name}"
        for module in product_modules()
        for node in module.tree.body
        if isinstance(node, ast.ClassDef | Function) and not node.name.startswith("_") and not ast.get_docstring(node)
    ]

    assert silent == []


def test_no_name_says_nothing():
    named = [(module.shown, module.path.stem) for module in every_module()]
    named += [
        (f"{module.shown}:{node.lineno}", node.name)
        for module in every_module()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef | Function)
    ]

    assert [f"{where} {name}" for where, name in named if words_of(name) & BANNED_WORDS] == []


def test_every_test_asserts_something():
    idle = [
        f"{module.shown}:{function.lineno} {function.name}"
        for module in tool_modules()
        if module.path.name.startswith("test_")
        for function in functions_of(module)
        if function.name.startswith("test_") and not asserts(function)
    ]

    assert idle == []


def test_no_test_patches_what_it_tests():
    """Time, randomness and sockets are handed in; a test that must patch shows that something is reached for."""
    wrong = [
        f"{module.shown}:{function.lineno} {function.name}"
        for module in tool_modules()
        if module.path.name.startswith("test_")
        for function in functions_of(module)
        if function.name.startswith("test_") and {"monkeypatch", "mocker"} & {arg.arg for arg in function.args.args}
    ]

    assert wrong == []


def length_of(function: Function) -> int:
    """Lines from `def` to the last statement."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def words_of(name: str) -> set[str]:
    """snake_case and CamelCase names as lower-case words."""
    return set(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_"))


def asserts(function: Function) -> bool:
    """Whether a test can fail by its own word: assert, pytest.raises, a wait with a deadline, an assert_... of ours."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call):
            called = dotted(node.func).rpartition(".")[2]
            if called in {"raises", "fail", "wait_for", "eventually"} or called.startswith("assert_"):
                return True
    return False
