"""Tickets of the relay: for one end of one lane in one epoch, by one secret."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from swarm_leader.relay.ticket import Tickets

END = ("ring", "act", 7, "sender")


def test_a_ticket_opens_the_end_it_is_for():
    tickets = Tickets(b"a secret of sixteen")

    assert tickets.is_valid(tickets.ticket(*END), *END)
    assert len(tickets.ticket(*END)) == 32


@pytest.mark.parametrize(
    "other",
    [("rings", "act", 7, "sender"), ("ring", "tok", 7, "sender"), ("ring", "act", 8, "sender"), (*END[:3], "receiver")],
)
def test_a_ticket_opens_no_other_end(other):
    tickets = Tickets(b"a secret of sixteen")

    assert not tickets.is_valid(tickets.ticket(*END), *other)


def test_a_ticket_of_another_secret_opens_nothing():
    assert not Tickets(b"one secret").is_valid(Tickets(b"another secret").ticket(*END), *END)


def test_what_is_no_ticket_opens_nothing():
    tickets = Tickets(b"a secret of sixteen")

    assert not any(tickets.is_valid(presented, *END) for presented in (b"", b"x", bytes(32), bytes(10_000)))


@given(
    st.lists(st.tuples(st.text(max_size=6), st.text(max_size=6), st.integers(0, 2**64 - 1)), min_size=2, unique=True)
)
def test_no_two_ends_have_one_ticket(ends):
    """Names run into each other: ("ab", "c") is not ("a", "bc")."""
    tickets = Tickets(b"a secret of sixteen")
    written = {tickets.ticket(lane, channel, epoch, "sender") for lane, channel, epoch in ends}

    assert len(written) == len(ends)
