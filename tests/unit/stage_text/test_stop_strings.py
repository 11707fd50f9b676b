"""Where a text ends must not depend on how it was cut into pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from swarm_core.errors import BadRequest
from swarm_stage.text.stop_strings import StopMatcher

LETTERS = "abc\n"


def run(stop, pieces):
    matcher, out, stopped = StopMatcher(stop), "", False
    for piece in pieces:
        text, stopped = matcher.push(piece)
        out += text
        if stopped:
            break
    return out + matcher.finish(), stopped


@given(
    st.lists(st.text(LETTERS, min_size=1, max_size=4), max_size=3),
    st.lists(st.text(LETTERS, max_size=5), max_size=12),
)
def test_any_cut_gives_the_text_before_the_first_stop(stop, pieces):
    text = "".join(pieces)
    ends = [(text.find(one) + len(one), text.find(one)) for one in stop if one in text]

    assert run(stop, pieces) == ((text[: min(ends)[1]], True) if ends else (text, False))
    assert run(stop, list(text)) == run(stop, [text])


@given(st.text(LETTERS, min_size=1, max_size=4), st.lists(st.text(LETTERS, max_size=5), max_size=8))
def test_one_stop_string_cuts_at_its_first_occurrence(stop, pieces):
    assert run([stop], pieces)[0] == "".join(pieces).split(stop)[0]


def test_only_what_may_begin_a_stop_string_is_held_back():
    matcher = StopMatcher(["<end>"])

    assert matcher.push("hello <e") == ("hello ", False)
    assert matcher.push("m>") == ("<em>", False)
    assert matcher.push("<en") == ("", False)
    assert matcher.push("d>more") == ("", True)
    assert matcher.push("even more") == ("", True)
    assert matcher.finish() == ""


def test_an_empty_stop_string_is_refused():
    with pytest.raises(BadRequest) as refused:
        StopMatcher(["a", ""])
    assert refused.value.facts["field"] == "stop"
