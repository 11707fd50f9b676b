"""Who counts as one caller, and what cannot make a caller many."""

import hashlib

from swarm_gateway.callers import caller_of


def test_a_credential_is_the_same_caller_from_anywhere():
    assert caller_of("Bearer abc", "10.0.0.1", "") == caller_of("bearer  abc ", "10.0.0.2", "")
    assert caller_of("Bearer abc", "10.0.0.1", "") != caller_of("Bearer abd", "10.0.0.1", "")


def test_without_a_credential_the_address_is_the_caller():
    assert (
        caller_of("", "10.0.0.1", "") == caller_of("Basic xyz", "10.0.0.1", "") == caller_of("Bearer ", "10.0.0.1", "")
    )
    assert caller_of("", "10.0.0.1", "") != caller_of("", "10.0.0.2", "")
    assert caller_of("", "10.0.0.1", "") == caller_of("", "::ffff:10.0.0.1", "")


def test_a_home_with_many_addresses_of_ipv6_is_one_caller():
    assert caller_of("", "2001:db8:1:2::1", "") == caller_of("", "2001:db8:1:2:ffff::9%eth0", "")
    assert caller_of("", "2001:db8:1:2::1", "") != caller_of("", "2001:db8:1:3::1", "")


def test_a_credential_cannot_pass_for_an_address():
    assert caller_of("Bearer 10.0.0.1", "10.0.0.9", "") != caller_of("", "10.0.0.1", "")


def test_the_fingerprint_holds_nothing_of_the_credential_and_depends_on_the_secret():
    made = caller_of("Bearer sk-very-secret", "10.0.0.1", "x")

    assert len(made) == 16 and int(made, 16) >= 0
    assert made not in hashlib.sha256(b"sk-very-secret").hexdigest()
    assert made != caller_of("Bearer sk-very-secret", "10.0.0.1", "y")
    assert caller_of("", "not an address", "") and caller_of("", "", "")
