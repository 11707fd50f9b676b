"""What a library would import by itself is hidden from it, and is there again afterwards."""

import importlib.util
import sys

import pytest
from swarm_stage.hidden_packages import hidden


def test_a_hidden_package_is_not_found_inside_and_is_what_it_was_behind():
    import json.tool

    with hidden("json.tool", "wave"):
        assert importlib.util.find_spec("wave") is None
        with pytest.raises(ImportError):
            import wave
    import wave

    assert sys.modules["json.tool"] is json.tool
    assert wave.__name__ == "wave"


def test_an_import_that_fails_leaves_nothing_hidden():
    with pytest.raises(ImportError), hidden("wave"):
        import wave  # noqa: F401

    assert importlib.util.find_spec("wave") is not None
