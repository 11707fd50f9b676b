"""Coded hidden states: how far off, the same bytes everywhere, and every lie refused before memory is taken."""

import hashlib
import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from silentswarm.core.v1.tensor_pb2 import CodedTensor
from swarm_core.errors import BadFrame, StageFailed
from swarm_wire.codecs import (
    CODE_MOST,
    CODECS,
    SCALE_MIN,
    check_coded,
    decode,
    decode_rows,
    encode,
    encode_rows,
    row_bytes,
)

EACH_CODEC = pytest.mark.parametrize("codec", CODECS)
LARGEST = float(np.float32(3.4e38))  # a little below the largest float32
FLOATS = st.floats(-LARGEST, LARGEST, width=32)
SHAPES = st.tuples(st.integers(1, 5), st.integers(1, 40))
HIDDEN_STATES = SHAPES.flatmap(lambda shape: arrays.arrays(np.float32, shape, elements=FLOATS))
BOTH_CODECS = st.sampled_from(CODECS)


def rows_of(count: int, width: int, seed: int = 0) -> np.ndarray:
    """Rows as a model makes them: a few channels far larger than the rest."""
    numbers = np.random.default_rng(seed)
    hidden_TD = numbers.standard_normal((count, width)).astype(np.float32)
    hidden_TD[:, ::17] *= 30
    return hidden_TD


def scales_of(coded: CodedTensor) -> np.ndarray:
    return np.frombuffer(coded.scales, dtype="<f4")


def changed(coded: CodedTensor, **fields) -> CodedTensor:
    """A copy that says something else."""
    other = CodedTensor()
    other.CopyFrom(coded)
    for name, value in fields.items():
        if name == "shape":
            other.shape[:] = value
        else:
            setattr(other, name, value)
    return other


@given(BOTH_CODECS, HIDDEN_STATES)
@example("int8", np.zeros((2, 3), dtype=np.float32))
@example("int4", np.full((1, 5), 1e-45, dtype=np.float32))
@example("int8", np.full((1, 4), LARGEST, dtype=np.float32))
def test_an_element_comes_back_half_a_scale_off_at_most(codec, hidden_TD):
    coded = encode(codec, hidden_TD)
    assert check_coded(coded, codec, hidden_TD.shape[1]) == hidden_TD.shape[0]
    off_TD = np.abs(decode(coded).astype(np.float64) - hidden_TD)
    bound_T1 = scales_of(coded).astype(np.float64)[:, None] / 2
    most_T = np.abs(hidden_TD).max(axis=1).astype(np.float64)

    assert (off_TD <= bound_T1 * (1 + 1e-6)).all()  # the division of x by its scale rounds
    assert (scales_of(coded) <= np.maximum(most_T / CODE_MOST[codec] * (1 + 2.0**-16), SCALE_MIN)).all()


@given(BOTH_CODECS, HIDDEN_STATES)
@example("int8", np.full((1, 1), np.float32(8388672 * 127), dtype=np.float32))  # a scale that 24 bits would not survive
def test_what_was_decoded_codes_to_the_same_codes_again(codec, hidden_TD):
    coded = encode(codec, hidden_TD)

    assert encode(codec, decode(coded)) == coded


@given(BOTH_CODECS, HIDDEN_STATES)
def test_rows_coded_and_decoded_together_are_what_each_is_alone(codec, hidden_TD):
    together = encode_rows(codec, hidden_TD)

    assert together == [encode(codec, row_D[None]) for row_D in hidden_TD]
    assert np.array_equal(decode_rows(together), decode(encode(codec, hidden_TD)))


@EACH_CODEC
def test_a_row_of_zeros_stays_one_and_stays_apart_from_its_neighbours(codec):
    hidden_TD = rows_of(3, 9)
    hidden_TD[1] = 0
    decoded_TD = decode(encode(codec, hidden_TD))

    assert not decoded_TD[1].any() and not np.signbit(decoded_TD[1]).any()
    assert np.array_equal(decoded_TD[[0, 2]], decode(encode(codec, hidden_TD[[0, 2]])))


def test_halves_go_to_the_even_code():
    halves_D = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 7.0], dtype=np.float32)  # of a scale of 1

    assert decode(encode("int4", halves_D[None]))[0].tolist() == [0, 2, 2, 0, -2, 7]


def test_int4_travels_as_two_codes_a_byte_the_earlier_one_low_and_ends_odd_rows_with_an_empty_half():
    coded = encode("int4", np.array([[1, -2, 7], [-7, 3, -1]], dtype=np.float32))

    assert coded.codes == bytes([0xE1, 0x07, 0x39, 0x0F])
    assert (list(coded.shape), scales_of(coded).tolist()) == ([2, 3], [1.0, 1.0])


def test_int8_travels_as_one_byte_a_code():
    coded = encode("int8", np.array([[127, -1, 0.4]], dtype=np.float32))

    assert (coded.codes, coded.scales) == (bytes([127, 255, 0]), np.float32(1).tobytes())


@pytest.mark.parametrize(
    ("codec", "digest"),
    [
        ("int8", "00ffb0d474bb82f8"),
        ("int4", "23ebda7e83876085"),
    ],
)
def test_the_bytes_are_the_same_on_every_machine(codec, digest):
    """Written down once; a machine, a numpy or a change that gives others breaks every ring of two machines."""
    numbers_N = np.arange(64 * 577, dtype=np.int64) * 2654435761 % 2**32 - 2**31
    hidden_TD = (numbers_N.reshape(64, 577) * np.arange(1, 65)[:, None] / 2.0**27).astype(np.float32)
    coded = encode(codec, hidden_TD)
    told = hashlib.sha256(coded.codes + coded.scales + decode(coded).astype("<f4").tobytes())

    assert told.hexdigest()[:16] == digest


@EACH_CODEC
@pytest.mark.parametrize(
    "bad",
    [
        np.array(0x7FC00000, dtype=np.uint32).view(np.float32),
        np.array(0x7FFFFFFF, dtype=np.uint32).view(np.float32),  # every payload of a NaN
        np.array(0xFFFFFFFF, dtype=np.uint32).view(np.float32),
        np.float32(np.inf),
        np.float32(-np.inf),
        np.finfo(np.float32).max,
    ],
    ids=str,
)
def test_a_row_that_is_not_finite_is_refused_and_its_neighbours_are_coded(codec, bad):
    hidden_TD = rows_of(3, 33)
    hidden_TD[1, 7] = bad
    good, refused, also_good = encode_rows(codec, hidden_TD)

    assert isinstance(refused, StageFailed) and "row 1" in refused.message
    assert [good, also_good] == encode_rows(codec, hidden_TD[[0, 2]])
    with pytest.raises(StageFailed, match="row 1"):
        encode(codec, hidden_TD)


@EACH_CODEC
def test_coding_leaves_what_it_was_given_as_it_was(codec):
    hidden_TD = rows_of(2, 8)
    hidden_TD[1, 3] = np.nan
    before = hidden_TD.tobytes()
    encode_rows(codec, hidden_TD)

    assert hidden_TD.tobytes() == before


@EACH_CODEC
@pytest.mark.parametrize(
    "shape",
    [
        [],
        [2],
        [2, 12, 1],
        [0, 12],
        [2, 0],
        [0, 0],
        [3, 12],
        [1, 12],
        [2, 11],
        [2, 13],
        [2**32 - 1, 12],
        [2**32 - 1] * 2,
    ],
    ids=str,
)
def test_a_shape_that_is_not_the_bytes_is_a_bad_frame_before_memory_is_taken(codec, shape):
    coded = changed(encode(codec, rows_of(2, 12)), shape=shape)
    tracemalloc.start()
    with pytest.raises(BadFrame):
        check_coded(coded, codec, 12)
    taken_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert taken_bytes < 2**16


@EACH_CODEC
def test_a_width_that_is_not_the_models_is_a_bad_frame_though_the_bytes_agree(codec):
    with pytest.raises(BadFrame, match="14 wide; this model is 12 wide"):
        check_coded(encode(codec, rows_of(2, 14)), codec, 12)


@EACH_CODEC
@pytest.mark.parametrize("name", ["codes", "scales"])
@pytest.mark.parametrize("bytes_more", [-1, 1, -4, 4])
def test_bytes_missing_or_left_over_are_a_bad_frame(codec, name, bytes_more):
    coded = encode(codec, rows_of(2, 12))
    brought = getattr(coded, name)
    other = brought[:bytes_more] if bytes_more < 0 else brought + bytes(bytes_more)

    with pytest.raises(BadFrame, match="bytes and brings"):
        check_coded(changed(coded, **{name: other}), codec, 12)


@pytest.mark.parametrize("said", ["", "int8 ", "INT8", "zip", "int4", "x" * 100_000])
def test_a_codec_that_is_not_the_links_is_a_bad_frame_with_few_words(said):
    with pytest.raises(BadFrame) as refused:
        check_coded(changed(encode("int8", rows_of(2, 12)), codec=said), "int8", 12)

    assert len(refused.value.message) < 200


@EACH_CODEC
def test_codes_on_a_link_that_codes_nothing_are_a_bad_frame(codec):
    with pytest.raises(BadFrame, match="this link sends none"):
        check_coded(encode(codec, rows_of(2, 12)), "", 12)


@EACH_CODEC
@pytest.mark.parametrize("scale", [np.nan, -np.nan, np.inf, -np.inf, -1.0, -1e-30, 3.0e38])
def test_a_scale_that_is_none_is_a_bad_frame_that_names_its_row(codec, scale):
    coded = encode(codec, rows_of(3, 12))
    scales_T = scales_of(coded).copy()
    scales_T[1] = scale

    with pytest.raises(BadFrame, match="row 1"):
        check_coded(changed(coded, scales=scales_T.tobytes()), codec, 12)


@given(BOTH_CODECS, st.integers(1, 9), st.data())
def test_whatever_is_let_through_decodes_to_finite_numbers(codec, width, drawn):
    codes = drawn.draw(st.binary(min_size=row_bytes(codec, width), max_size=row_bytes(codec, width)))
    scale = np.float32(drawn.draw(st.floats(width=32)))
    coded = CodedTensor(codec=codec, shape=[1, width], codes=codes, scales=scale.tobytes())
    try:
        check_coded(coded, codec, width)
    except BadFrame:
        return
    decoded_TD = decode(coded)

    assert decoded_TD.shape == (1, width) and decoded_TD.dtype == np.float32
    assert np.isfinite(decoded_TD).all()


@pytest.mark.parametrize(
    ("codec", "width", "codes"),
    [
        ("int8", 3, bytes([1, 0x80, 1])),
        ("int4", 4, bytes([0x18, 0x11])),
        ("int4", 4, bytes([0x11, 0x81])),
        ("int4", 3, bytes([0x11, 0x11])),  # the half behind an odd row
    ],
)
def test_what_is_no_code_is_a_bad_frame(codec, width, codes):
    coded = CodedTensor(codec=codec, shape=[1, width], codes=codes, scales=np.float32(1).tobytes())

    with pytest.raises(BadFrame, match=f"no code of {codec}"):
        check_coded(coded, codec, width)
