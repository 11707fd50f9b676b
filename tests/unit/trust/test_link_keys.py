"""Keys of a ring: who gets which secret, name and ticket, and who is refused by name."""

import itertools

import pytest
from silentswarm.core.v1 import capabilities_pb2, hardware_pb2
from swarm_core.errors import CapabilityMissing
from swarm_leader.domain.capabilities import Capabilities
from swarm_leader.domain.records import FellowRecord
from swarm_leader.flows.link_keys import LinkKeys
from swarm_leader.flows.registry import Fellow
from swarm_leader.relay.ticket import Tickets
from swarm_rpc.tls import fellow_name
from swarm_stage.ring.link import channel_of

TICKETS = Tickets(b"the relay's secret")


def fellow(name: str, link_keys: bool = True, has_certificate: bool = True) -> Fellow:
    record = FellowRecord(f"id-{name}", name, name, "1", b"", b"", 0.0)
    return Fellow(
        record,
        hardware_pb2.Hardware(),
        capabilities_pb2.Capabilities(),
        Capabilities(link_keys=link_keys),
        has_certificate=has_certificate,
    )


def keys(has_tls: bool = True, is_enforced: bool = False) -> LinkKeys:
    """Draws 1, 2, 3, ... so that tests can tell secrets apart."""
    numbers = itertools.count(1)
    return LinkKeys(TICKETS, lambda count: bytes([next(numbers)]) * count, has_tls, lambda: is_enforced)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_both_ends_of_a_link_and_nobody_else_get_its_secret(count):
    fellows = [fellow(f"f{index}") for index in range(count)]
    made = keys().make("ring", 7, fellows)

    assert [one.next_secret for one in made] == [made[(i + 1) % count].previous_secret for i in range(count)]
    assert len({one.next_secret for one in made}) == count
    assert [one.next_name for one in made] == [fellow_name(f"id-f{(i + 1) % count}") for i in range(count)]
    assert [one.previous_name for one in made] == [fellow_name(f"id-f{(i - 1) % count}") for i in range(count)]


def test_tickets_are_for_the_channels_that_stages_attach_to():
    made = keys().make("ring", 7, [fellow(name) for name in "abc"])
    for index, one in enumerate(made):
        sends, hears = channel_of(index, 3), channel_of((index - 1) % 3, 3)

        assert TICKETS.is_valid(one.sender_ticket, "ring", sends, 7, "sender")
        assert TICKETS.is_valid(one.receiver_ticket, "ring", hears, 7, "receiver")


def test_every_epoch_has_secrets_of_its_own():
    maker, ring = keys(), [fellow("a"), fellow("b")]
    first, second = maker.make("ring", 1, ring), maker.make("ring", 2, ring)

    assert not {one.next_secret for one in first} & {one.next_secret for one in second}


def test_without_tls_links_are_proved_and_not_encrypted():
    made = keys(has_tls=False).make("ring", 1, [fellow("a"), fellow("b")])

    assert all(one.next_secret and not one.next_name and not one.previous_name for one in made)


def test_a_ring_with_a_fellow_that_cannot_goes_without_keys_where_nothing_is_asked():
    ring = [fellow("a"), fellow("old", link_keys=False)]
    maker = keys(has_tls=False)

    assert maker.make("ring", 1, ring) == [None, None]
    assert maker.check(ring) is None


def test_a_stage_alone_has_no_neighbour_to_prove_anything_to():
    assert keys().make("ring", 1, [fellow("a")]) == [None]
    assert keys().check([fellow("old", link_keys=False)]) is None


@pytest.mark.parametrize(("has_tls", "is_enforced"), [(True, False), (False, True)])
def test_where_it_is_asked_for_the_fellow_that_cannot_is_named(has_tls, is_enforced):
    with pytest.raises(CapabilityMissing, match="fellow old cannot prove itself") as refused:
        keys(has_tls, is_enforced).check([fellow("a"), fellow("old", link_keys=False)])

    assert refused.value.facts["capability"] == "link_keys"


def test_a_fellow_without_a_certificate_is_named_where_links_are_encrypted():
    bare = fellow("bare", has_certificate=False)

    with pytest.raises(CapabilityMissing, match="fellow bare has no certificate"):
        keys().check([fellow("a"), bare])
    assert keys(has_tls=False, is_enforced=True).check([fellow("a"), bare]) is None
