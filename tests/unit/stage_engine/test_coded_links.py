"""Rings whose links are coded: the same replies over fewer bytes; a frame in the wrong form ends its session only."""

import numpy as np
import pytest
from silentswarm.core.v1 import tensor_pb2
from silentswarm.ring.v1 import ring_pb2
from swarm_core.errors import Reason
from swarm_wire.codecs import CODECS, SCALE_BYTES, encode, row_bytes

from tests.unit.stage_engine.coded_compute import WIDTH, CodedCompute
from tests.unit.stage_engine.memory_ring import MemoryRing, lone_run

PROMPT = [5, 7, 11]
EACH_CODEC = pytest.mark.parametrize("codec", CODECS)
NO_HIDDEN = ring_pb2.Hidden()


def coded_ring(stages: int, codec: str, poison: dict[int, int] | None = None, **sizes) -> MemoryRing:
    computes = [
        CodedCompute(index == 0, index == stages - 1, codec, (poison or {}).get(index)) for index in range(stages)
    ]
    return MemoryRing(stages, computes=computes, hidden_size=WIDTH, codec=codec, **sizes)


def rows_of(rows: int = 1, width: int = WIDTH) -> np.ndarray:
    return np.arange(1, rows * width + 1, dtype=np.float32).reshape(rows, width)


def as_it_is(hidden_TD: np.ndarray) -> tensor_pb2.Tensor:
    return tensor_pb2.Tensor(dtype="F32", shape=hidden_TD.shape, data=hidden_TD.astype("<f4").tobytes())


def changed(coded: tensor_pb2.CodedTensor, **fields) -> tensor_pb2.CodedTensor:
    whole = {"codec": coded.codec, "shape": coded.shape, "codes": coded.codes, "scales": coded.scales}
    return tensor_pb2.CodedTensor(**{**whole, **fields})


@EACH_CODEC
@pytest.mark.parametrize("stages", [2, 3])
def test_replies_over_coded_links_are_complete_and_every_hidden_frame_is_coded(codec, stages):
    ring = coded_ring(stages, codec, chunk=2)
    heard = [ring.submit(name, [*PROMPT, ord(name)], new_tokens=6) for name in "abc"]
    ring.run()
    hidden = [frame.hidden for batch in ring.sent for frame in batch.frames if frame.HasField("hidden")]

    assert [told.tokens for told in heard] == [lone_run([*PROMPT, ord(name)], stages, 6) for name in "abc"]
    assert len(hidden) > 20
    assert all(body.HasField("coded") and not body.HasField("hidden") for body in hidden)
    assert sum(counters.frames_refused for counters in ring.counters) == 0


@EACH_CODEC
@pytest.mark.parametrize("stages", [2, 3])
def test_a_token_takes_fewer_bytes_by_exactly_what_codes_save_on_every_link(codec, stages):
    timings = []
    for link_codec in ("", codec):
        ring = coded_ring(stages, link_codec)
        heard = ring.submit("a", PROMPT, new_tokens=12)
        ring.run()
        assert heard.tokens == lone_run(PROMPT, stages, 12)
        timings.append(heard.finished.timing)
    plain, coded = (timing.bytes_per_token for timing in timings)
    as_float = ring_pb2.Frame(hidden=ring_pb2.Hidden(hidden=as_it_is(rows_of())))
    as_codes = ring_pb2.Frame(hidden=ring_pb2.Hidden(coded=encode(codec, rows_of())))

    # A link less than there are stages: the last one carries tokens.
    saved_bytes = as_float.ByteSize() - as_codes.ByteSize()
    assert plain - coded == pytest.approx((stages - 1) * saved_bytes)
    row_saves_bytes = WIDTH * 4 - row_bytes(codec, WIDTH) - SCALE_BYTES
    assert row_saves_bytes - 8 <= saved_bytes <= row_saves_bytes  # the codec's name and a second length


@EACH_CODEC
@pytest.mark.parametrize(
    "lie",
    [
        lambda codec: ring_pb2.Hidden(hidden=as_it_is(rows_of())),
        lambda codec: ring_pb2.Hidden(hidden=as_it_is(rows_of()), coded=encode(codec, rows_of())),
        lambda codec: NO_HIDDEN,
        lambda codec: ring_pb2.Hidden(coded=tensor_pb2.CodedTensor()),
        lambda codec: ring_pb2.Hidden(coded=encode("int4" if codec == "int8" else "int8", rows_of())),
        lambda codec: ring_pb2.Hidden(coded=changed(encode(codec, rows_of()), codec="zip")),
        lambda codec: ring_pb2.Hidden(coded=changed(encode(codec, rows_of()), shape=[2, WIDTH])),
        lambda codec: ring_pb2.Hidden(coded=changed(encode(codec, rows_of()), shape=[2**32 - 1, 2**32 - 1])),
        lambda codec: ring_pb2.Hidden(coded=changed(encode(codec, rows_of()), shape=[0, WIDTH])),
        lambda codec: ring_pb2.Hidden(coded=changed(encode(codec, rows_of()), codes=b"short")),
        lambda codec: ring_pb2.Hidden(coded=changed(encode(codec, rows_of()), scales=b"")),
        lambda codec: ring_pb2.Hidden(coded=changed(encode(codec, rows_of()), scales=np.float32(np.nan).tobytes())),
        lambda codec: ring_pb2.Hidden(coded=encode(codec, rows_of(1, WIDTH + 2))),
        lambda codec: ring_pb2.Hidden(coded=encode(codec, rows_of(9))),  # more than the context has left
    ],
)
def test_a_coded_link_refuses_what_is_not_its_codes_and_its_neighbours_go_on(codec, lie):
    ring = coded_ring(2, codec, context_tokens=8)
    good = ring.submit("good", PROMPT, new_tokens=3)
    bad = ring.submit("bad", [1], new_tokens=3)
    ring.first.turn()
    ring.first.turn()
    put_in_place_of_session_2(ring, lie(codec))
    ring.run()

    assert bad.broke.error.why is Reason.BAD_FRAME and "stage 1" in bad.broke.error.message
    assert good.tokens == lone_run(PROMPT, 2, 3)
    assert ring.counters[1].frames_refused == 1
    assert ring.computes[1].held_tokens() == 0


@EACH_CODEC
@pytest.mark.parametrize("brings_both", [False, True])
def test_a_link_without_codes_refuses_them_and_its_neighbours_go_on(codec, brings_both):
    ring = coded_ring(2, "")
    good = ring.submit("good", PROMPT, new_tokens=3)
    bad = ring.submit("bad", [1], new_tokens=3)
    ring.first.turn()
    ring.first.turn()
    plain = as_it_is(rows_of()) if brings_both else None
    put_in_place_of_session_2(ring, ring_pb2.Hidden(hidden=plain, coded=encode(codec, rows_of())))
    ring.run()

    assert bad.broke.error.why is Reason.BAD_FRAME and "no codes" in bad.broke.error.message
    assert good.tokens == lone_run(PROMPT, 2, 3)


@EACH_CODEC
def test_a_session_that_fails_on_a_coded_ring_ends_alone(codec):
    ring = coded_ring(3, codec, poison={1: 666})
    good = ring.submit("good", PROMPT, new_tokens=5)
    bad = ring.submit("bad", [1, 666, 2], new_tokens=5)
    ring.run()

    assert bad.broke.error.why is Reason.STAGE_FAILED
    assert good.tokens == lone_run(PROMPT, 3, 5)


def put_in_place_of_session_2(ring: MemoryRing, lie: ring_pb2.Hidden) -> None:
    for batch, _ in ring.links[1]:
        for frame in batch.frames:
            if frame.session == 2:
                honest = frame.hidden
                lie.sampling.CopyFrom(honest.sampling)
                lie.sample, lie.reserved_tokens = honest.sample, honest.reserved_tokens
                honest.CopyFrom(lie)
