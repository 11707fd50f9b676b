"""What `swarm incidents --steps` shows of an incident."""

from silentswarm.leader.v1 import resilience_pb2
from swarm_cli.incidents import steps_of


def test_the_last_words_of_a_stage_stay_below_their_step():
    log = [
        resilience_pb2.IncidentStep(at_s=100.0, what="stage 1 was ended by SIGKILL; it last wrote:\nkv budget\x1b[2J"),
        resilience_pb2.IncidentStep(at_s=100.25, what="tiny serves again"),
    ]
    incident = resilience_pb2.Incident(model_id="tiny", kind="crash", outcome="moved", opened_s=100.0, log=log)
    headline, *steps = steps_of(incident)

    assert headline.endswith("tiny: crash, moved")
    assert steps == [
        "  +0.0 s  stage 1 was ended by SIGKILL; it last wrote:",
        "          kv budget[2J",
        "  +0.2 s  tiny serves again",
    ]
