"""What counts as an error, a wrong reply, a lost and a repeated token. No processes."""

from pathlib import Path

import pytest

from tests.e2e.chaos.record import HEAD, Case, Result, write_table
from tests.e2e.chaos.streams import Stream

CASE = Case("kill stage", "middle", "decode")
FAULT_S = 100.0


def judged(**seen: object) -> Result:
    """One reply of four tokens, with a silence of 3 s around the fault, but for what is said."""
    facts = {"text": "one two", "arrivals_s": [98.0, 99.0, 102.0, 102.5], "completion_tokens": 4, "is_over": True}
    result = Result(CASE)
    result.judge([Stream("count", **facts | seen)], {"count": "one two"}, tokens=4, fault_s=FAULT_S)
    return result


def test_a_reply_as_undisturbed_is_only_late():
    result = judged()

    assert (result.errors, result.wrong, result.lost, result.repeated) == ([], 0, 0, 0)
    assert result.next_token_s == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("seen", "counts"),
    [
        ({"text": "one too"}, (1, 0, 0)),
        ({"text": "one", "completion_tokens": 2}, (1, 2, 0)),
        ({"text": "one two two", "completion_tokens": 5}, (1, 0, 1)),
        ({"completion_tokens": None}, (0, 4, 0)),
    ],
)
def test_every_difference_is_counted(seen: dict, counts: tuple[int, int, int]):
    result = judged(**seen)

    assert (result.wrong, result.lost, result.repeated) == counts


def test_a_reply_that_failed_is_an_error_and_not_judged_further():
    result = judged(error="the ring broke", text="one", completion_tokens=None)

    assert (result.errors, result.wrong, result.lost) == (["the ring broke"], 0, 0)


def test_the_table_is_written_below_what_the_page_said_before(tmp_path: Path):
    page = tmp_path / "chaos.md"
    page.write_text("# Chaos\n\nHow to read it.\n")
    for _ in range(2):
        write_table(page, [judged()], "conditions")

    assert page.read_text().startswith("# Chaos\n\nHow to read it.\n\n| fault")
    assert page.read_text().count(HEAD.splitlines()[0]) == 1
    assert "| kill stage | middle | decode | 0 | 0 / 0 / 0 |" in page.read_text()
