"""Sessions step in groups, come and go, and no group stays small for ever."""

from silentswarm.core.v1 import generation_pb2
from swarm_stage.engine.decode_groups import DecodeGroups
from swarm_stage.engine.reply import Reply, Request
from swarm_stage.engine.schedule import Plan


def reply(session: int) -> Reply:
    request = Request(str(session), (1,), generation_pb2.Sampling(), 9, frozenset(), lambda note: None, 0.0)
    return Reply(request, session, session)


def ready(*sessions: int) -> tuple[DecodeGroups, dict[int, Reply]]:
    groups, replies = DecodeGroups(), {session: reply(session) for session in sessions}
    for one in replies.values():
        groups.add(one)
    return groups, replies


def sent(groups: DecodeGroups, plan: Plan) -> list[list[int]]:
    return [[one.session for one in batch] for batch in groups.batches(plan)]


def come_back(groups: DecodeGroups, *replies: Reply) -> None:
    for one in replies:
        groups.answered(one)
        groups.add(one)


def test_sessions_leave_in_groups_and_no_more_of_them_than_planned():
    groups, _ = ready(1, 2, 3, 4, 5, 6)

    assert sent(groups, Plan(2, 2)) == [[1, 2], [3, 4]]
    assert sent(groups, Plan(2, 2)) == []
    assert groups.sessions == 6 and groups.out == 2


def test_one_that_becomes_ready_while_all_groups_are_out_joins_the_next_that_returns():
    groups, replies = ready(1, 2, 3, 4)
    sent(groups, Plan(2, 2))
    late = reply(5)
    groups.add(late)
    assert sent(groups, Plan(2, 3)) == []
    come_back(groups, replies[1], replies[2])

    assert sent(groups, Plan(2, 3)) == [[5, 1, 2]]


def test_a_group_counts_as_out_until_its_last_answer():
    groups, replies = ready(1, 2, 3)
    sent(groups, Plan(1, 2))
    come_back(groups, replies[1])
    held_back = sent(groups, Plan(1, 2))
    come_back(groups, replies[2])

    assert held_back == []
    assert sent(groups, Plan(1, 2)) == [[3, 1]]


def test_one_that_ends_inside_a_batch_does_not_keep_its_place():
    groups, replies = ready(1, 2)
    sent(groups, Plan(1, 2))
    groups.drop(replies[1])
    groups.drop(replies[2])

    assert groups.out == 0 and groups.sessions == 0


def test_beyond_a_cap_sessions_take_turns():
    """A ring of one answers inside the turn; everyone steps once a turn."""
    groups, replies = ready(1, 2, 3, 4, 5)
    turns = []
    for _ in range(2):
        for batch in groups.batches(Plan(3, 2)):
            turns.append([one.session for one in batch])
            come_back(groups, *batch)

    assert turns == [[1, 2], [3, 4], [5], [1, 2], [3, 4], [5]]
    assert len(replies) == groups.sessions


def test_costs_are_learned_from_the_first_answer_of_a_batch():
    groups, replies = ready(1, 2)
    sent(groups, Plan(1, 2))
    first, second = groups.answered(replies[1]), groups.answered(replies[2])

    assert first.sessions == 2 and second is None
