"""Every variable is a documented field of a config class, and the page holds no other."""

import re
import subprocess
import sys

from swarm_core.config import variables

from scripts.generate_configuration import config_classes
from tests.architecture.code_tree import ROOT, SERVICES, product_modules

# Ours, and those of the hub that go by the names its own clients know.
VARIABLE = re.compile(r"\bSWARM_[A-Z0-9_]*[A-Z0-9]\b|\bHF_(?:ENDPOINT|TOKEN)\b")
SCRIPTS = ("quickstart", "run-tests", "scripts/environment.sh")


def declared_variables() -> dict[str, str]:
    """Variable -> meaning, of every config class."""
    classes = [config for package in SERVICES for config in config_classes(package)]
    return {name: meaning for config in classes for name, meaning in variables(config).items()}


def test_the_page_is_written_from_the_config_classes():
    command = [sys.executable, ROOT / "scripts" / "generate_configuration.py", "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert checked.returncode == 0, checked.stderr


def test_every_variable_in_the_code_is_declared_and_documented():
    documented = set(VARIABLE.findall((ROOT / "docs" / "configuration.md").read_text()))
    declared = set(declared_variables())
    mentioned = {name for module in product_modules() for name in VARIABLE.findall(module.source)}
    mentioned |= {name for script in SCRIPTS for name in VARIABLE.findall((ROOT / script).read_text())}

    assert mentioned - declared == set()
    assert declared - documented == set()


def test_the_page_names_no_variable_that_nothing_reads():
    documented = set(VARIABLE.findall((ROOT / "docs" / "configuration.md").read_text()))

    assert documented - set(declared_variables()) == set()


def test_every_variable_says_what_it_means():
    assert [name for name, meaning in declared_variables().items() if len(meaning) < 10] == []
