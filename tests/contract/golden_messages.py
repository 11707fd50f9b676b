"""Messages whose bytes are kept. What they hold never changes; a new field gets a new message."""

import struct

from google.protobuf.message import Message
from silentswarm.core.v1 import capabilities_pb2, generation_pb2, reason_pb2, tensor_pb2, token_set_pb2
from silentswarm.ring.v1 import ring_pb2


def frame_batch() -> ring_pb2.FrameBatch:
    """A batch with every body a frame can have: a first prompt piece, tokens, an end and a failure."""
    hidden = ring_pb2.Hidden(
        hidden=tensor_pb2.Tensor(dtype="F32", shape=[2, 3], data=struct.pack("<6f", 0.0, 1.0, -1.5, 2.25, 1e-6, 3e4)),
        sampling=generation_pb2.Sampling(temperature=0.0, top_p=0.9, top_k=40, min_p=0.05, seed=2**63 + 7),
        sample=True,
        probe=True,
    )
    traces = [
        ring_pb2.Trace(stage_index=0, compute_us=1234, layer_start=0, layer_stop=15, received_bytes=0),
        ring_pb2.Trace(stage_index=1, compute_us=987, layer_start=15, layer_stop=30, received_bytes=4711),
    ]
    failure = ring_pb2.Failure(reason=reason_pb2.REASON_BAD_FRAME, message="position 7 is beyond 3", stage_index=1)
    return ring_pb2.FrameBatch(
        epoch=3,
        frames=[
            ring_pb2.Frame(session=1, pos=0, hidden=hidden, traces=traces),
            ring_pb2.Frame(session=2, pos=300, sampled=ring_pb2.Sampled(tokens=[49151, 0, 7])),
            ring_pb2.Frame(session=2**40, pos=1, end=ring_pb2.End()),
            ring_pb2.Frame(session=4, pos=7, failure=failure),
        ],
    )


def drawing_batch() -> ring_pb2.FrameBatch:
    """What frames say of drawing: how, from which tokens (every form of a set), and how likely they were."""
    sampling = generation_pb2.Sampling(
        temperature=0.75,
        frequency_penalty=0.5,
        presence_penalty=-0.5,
        repetition_penalty=1.25,
        logit_bias=[generation_pb2.LogitBias(token=49151, bias=-100), generation_pb2.LogitBias(token=0, bias=2.5)],
        top_logprobs=2,
    )
    few = token_set_pb2.TokenSet.IdList(ids=[0, 2, 49151])
    sets = [
        token_set_pb2.TokenSet(only=few),
        token_set_pb2.TokenSet(all_but=few),
        token_set_pb2.TokenSet(bits=bytes([0b00000101, 0b10000000])),
    ]
    likelihoods = [
        ring_pb2.Likelihood(logprob=-0.5, top_ids=[7, 9], top_logprobs=[-0.5, -1.25]),
        ring_pb2.Likelihood(logprob=-9999),
    ]
    first = ring_pb2.Hidden(sampling=sampling, sample=True, prompt_ids=[1, 5, 49151], allowed=sets[0])
    return ring_pb2.FrameBatch(
        epoch=3,
        frames=[
            ring_pb2.Frame(session=1, pos=0, hidden=first),
            *(ring_pb2.Frame(session=2, pos=9, hidden=ring_pb2.Hidden(sample=True, allowed=one)) for one in sets[1:]),
            ring_pb2.Frame(session=3, pos=12, sampled=ring_pb2.Sampled(tokens=[7, 8], likelihoods=likelihoods)),
        ],
    )


def weights_batch() -> ring_pb2.FrameBatch:
    """A session with an adapter whose hidden state crosses a coded boundary."""
    coded = tensor_pb2.CodedTensor(codec="int4", shape=[2, 3], codes=bytes([0x71, 0x0F, 0x90, 0x02]))
    coded.scales = struct.pack("<2f", 0.5, 1.0)
    hidden = ring_pb2.Hidden(coded=coded, adapter="org/helper", sample=True)
    return ring_pb2.FrameBatch(epoch=3, frames=[ring_pb2.Frame(session=1, pos=0, hidden=hidden)])


def capabilities(newest: int) -> capabilities_pb2.Capabilities:
    """Every capability up to field `newest` declared, every parameter set: what fellows of that time say."""
    declared = capabilities_pb2.Capabilities()
    for field in declared.DESCRIPTOR.fields:
        if field.number <= newest:
            getattr(declared, field.name).SetInParent()
    declared.wire.MergeFrom(
        capabilities_pb2.Wire(version_min=1, version_max=2, frame_bytes_max=64 * 2**20, dtypes=["F32", "F16", "BF16"])
    )
    declared.serve.MergeFrom(capabilities_pb2.Serve(loaded_models_max=1, model_types=["llama", "qwen3"]))
    declared.serve_n_stage.stage_count_max = 16
    declared.serve_concurrent.in_flight_max = 8
    declared.serve_codec.codecs.extend(["int8"])
    declared.serve_quantized.methods.extend(["nf4", "int8"])
    declared.serve_speculative.drafts_max = 8
    if newest >= 31:
        declared.serve_adapters.adapters_max = 32
        declared.serve_storage.dtypes.extend(["F16", "BF16"])
    return declared


def all_golden() -> dict[str, Message]:
    """File name below golden/ -> message."""
    return {
        "frame_batch.hex": frame_batch(),
        "drawing_batch.hex": drawing_batch(),
        "capabilities.hex": capabilities(25),
        "capabilities_27.hex": capabilities(27),
        "capabilities_31.hex": capabilities(31),
        "capabilities_35.hex": capabilities(35),
        "weights_batch.hex": weights_batch(),
    }
