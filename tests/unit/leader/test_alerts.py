"""Who is told of what: each once, not too many, and nothing that corrects itself."""

from dataclasses import replace

import pytest
from swarm_core.errors import BadRequest
from swarm_leader.domain.telemetry_records import NodeEvent
from swarm_leader.telemetry.alert_ways import Email, Webhook
from swarm_leader.telemetry.alerts import AGAIN_S, HOUR_MAX, HOUR_S, AlertGate

LOST = NodeEvent(1000.0, "main", "f1", "kitchen", "lost", "no heartbeat for 9 s")


def test_a_lost_machine_is_an_alert_with_its_words():
    alert = AlertGate().take(LOST, 5.0)

    assert alert is not None
    assert (alert.title, alert.words) == ("SilentSwarm: kitchen: lost", "no heartbeat for 9 s")


@pytest.mark.parametrize("kind", ["joined", "returned", "silent", "deleted", "drained", "incident_closed"])
def test_what_corrects_itself_or_was_asked_for_is_none(kind: str):
    assert AlertGate().take(replace(LOST, kind=kind), 5.0) is None


def test_a_grade_is_an_alert_when_it_becomes_bad():
    gate = AlertGate()

    assert gate.take(replace(LOST, kind="graded", words="A to B (80 of 100): ..."), 5.0) is None
    assert gate.take(replace(LOST, kind="graded", words="B to A (99 of 100): was to D"), 5.0) is None
    assert gate.take(replace(LOST, kind="graded", words="B to F (20 of 100): ..."), 5.0) is not None


def test_the_same_is_told_once_a_quarter_of_an_hour():
    gate = AlertGate()
    gate.take(LOST, 0.0)
    again = [gate.take(LOST, now_s) for now_s in (1.0, AGAIN_S - 1, AGAIN_S)]
    other = gate.take(replace(LOST, fellow_id="f2"), AGAIN_S)

    assert again[:2] == [None, None]
    assert again[2] is not None
    assert (again[2].held_back, other.held_back) == (2, 0)
    assert again[2].words.endswith("2 more alerts were held back.")


def test_no_storm_sends_more_than_so_many_an_hour():
    gate = AlertGate()
    storm = [gate.take(replace(LOST, fellow_id=f"f{number}"), number / 10) for number in range(1000)]
    later = gate.take(replace(LOST, fellow_id="last"), HOUR_S + 1)

    assert sum(alert is not None for alert in storm) == HOUR_MAX
    assert later.held_back == 1000 - HOUR_MAX


@pytest.mark.parametrize("url", ["http://example.org/hook", "ftp://example.org", "https://", "example.org"])
def test_a_webhook_that_is_not_https_is_refused(url: str):
    with pytest.raises(BadRequest, match="SWARM_ALERT_WEBHOOK"):
        Webhook(url, "", lambda: 0.0)


@pytest.mark.parametrize(
    ("url", "to", "named"),
    [
        ("http://mail.example", "ann@example.org", "SWARM_ALERT_SMTP_URL"),
        ("", "ann@example.org", "SWARM_ALERT_SMTP_URL"),
        ("smtp://mail.example", "", "SWARM_ALERT_TO"),
        ("smtp://mail.example", "ann@example.org\nBcc: all@example.org", "SWARM_ALERT_TO"),
        ("smtp://mail.example", "ann", "SWARM_ALERT_TO"),
    ],
)
def test_mail_that_cannot_be_sent_is_refused_at_the_start(url: str, to: str, named: str):
    with pytest.raises(BadRequest, match=named):
        Email(url, to)
