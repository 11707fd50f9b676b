"""Sets of tokens: what goes in comes out, in the shortest form, and a lie is refused before memory is taken."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from silentswarm.core.v1.token_set_pb2 import TokenSet
from swarm_core.errors import BadFrame
from swarm_wire.token_sets import mask_of, token_set


def allowed_of(ids, vocabulary_size: int) -> np.ndarray:
    allowed_V = np.zeros(vocabulary_size, dtype=bool)
    allowed_V[list(ids)] = True
    return allowed_V


def forms_of(allowed_V: np.ndarray) -> list[TokenSet]:
    only = TokenSet.IdList(ids=np.flatnonzero(allowed_V).tolist())
    all_but = TokenSet.IdList(ids=np.flatnonzero(~allowed_V).tolist())
    bits = np.packbits(allowed_V, bitorder="little").tobytes()
    return [TokenSet(only=only), TokenSet(all_but=all_but), TokenSet(bits=bits)]


@given(st.integers(1, 700).flatmap(lambda size: st.tuples(st.just(size), st.sets(st.integers(0, size - 1)))))
def test_every_set_comes_back_from_each_of_its_forms_and_the_one_chosen_is_the_shortest(drawn):
    vocabulary_size, ids = drawn
    allowed_V = allowed_of(ids, vocabulary_size)
    forms, chosen = forms_of(allowed_V), token_set(allowed_V)

    for form in [*forms, chosen]:
        assert np.array_equal(mask_of(form, vocabulary_size), allowed_V)
    assert chosen.ByteSize() == min(form.ByteSize() for form in forms)


@pytest.mark.parametrize(
    ("ids", "form"),
    [((), "only"), ((3,), "only"), (range(1, 49_152), "all_but"), (range(0, 49_152, 2), "bits"), ((49_151,), "only")],
)
def test_few_are_listed_all_but_few_too_and_the_rest_are_bits(ids, form):
    assert token_set(allowed_of(ids, 49_152)).WhichOneof("form") == form


@given(st.sets(st.integers(0, 299_999), max_size=40), st.booleans())
def test_ids_of_large_vocabularies_take_no_more_than_their_shortest_form(ids, is_inverted):
    allowed_V = allowed_of(ids, 300_000) ^ is_inverted

    assert token_set(allowed_V).ByteSize() == min(form.ByteSize() for form in forms_of(allowed_V))


@pytest.mark.parametrize(
    "lie",
    [
        TokenSet(),
        TokenSet(only=TokenSet.IdList(ids=[10])),
        TokenSet(only=TokenSet.IdList(ids=[2**32 - 1])),
        TokenSet(all_but=TokenSet.IdList(ids=[0, 10])),
        TokenSet(only=TokenSet.IdList(ids=[3, 2])),
        TokenSet(only=TokenSet.IdList(ids=[3, 3])),
        TokenSet(all_but=TokenSet.IdList(ids=range(11))),
        TokenSet(bits=b""),
        TokenSet(bits=b"\xff"),
        TokenSet(bits=b"\xff\x01\x00"),
        TokenSet(bits=b"\x00\x04"),
    ],
)
def test_a_set_that_lies_about_a_vocabulary_of_ten_is_a_bad_frame(lie):
    with pytest.raises(BadFrame):
        mask_of(lie, 10)


def test_a_list_of_more_tokens_than_there_are_takes_no_memory():
    lie = TokenSet(all_but=TokenSet.IdList(ids=range(2**20)))
    tracemalloc.start()
    try:
        with pytest.raises(BadFrame):
            mask_of(lie, 2**19)
        taken_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert taken_bytes < 2**16


def test_the_mask_of_a_set_may_be_written_to():
    for form in forms_of(allowed_of({1, 4}, 9)):
        mask = mask_of(form, 9)
        mask[2] = True
        assert mask.dtype == bool and mask.tolist() == [index in (1, 2, 4) for index in range(9)]
