"""Names of fellows: tidy, unique, and stable over reconnects."""

from swarm_leader.domain.names import tidy_name, unique_name


def test_a_taken_name_gets_a_number():
    assert unique_name("kitchen", "", {"kitchen"}) == "kitchen-2"
    assert unique_name("kitchen", "", {"kitchen", "kitchen-2"}) == "kitchen-3"
    assert unique_name("kitchen", "", {"attic"}) == "kitchen"


def test_a_fellow_keeps_the_name_it_was_given():
    assert unique_name("kitchen", "kitchen-2", set()) == "kitchen-2"
    assert unique_name("attic", "kitchen-2", set()) == "attic"


def test_names_are_tidied():
    assert tidy_name("  my pc <script> ") == "my-pc-script"
    assert tidy_name("//") == "fellow"
    assert len(tidy_name("x" * 500)) == 64
