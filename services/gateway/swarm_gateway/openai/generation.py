"""A checked chat request -> the swarm's Generation. Pure; the edge where outside names end."""

import json

from silentswarm.core.v1 import generation_pb2

from swarm_gateway.openai.chat_request import ChatRequest
from swarm_gateway.openai.messages import Message

_ROLES = {"developer": "system"}  # one meaning, renamed by OpenAI; templates know "system"


def generation_of(request: ChatRequest, caller: str = "") -> generation_pb2.Generation:
    """What to generate. Fields the request leaves out stay absent, for the model's own defaults.

    caller: the fingerprint it shares the ring by.
    """
    chat = generation_pb2.Chat(messages=[_message_of(message) for message in request.messages])
    arguments = request.chat_template_kwargs
    if arguments is not None and arguments.enable_thinking is not None:
        chat.enable_thinking = arguments.enable_thinking
    return generation_pb2.Generation(
        chat=chat,
        sampling=_sampling_of(request),
        new_tokens_max=request.new_tokens_max,
        stop=request.stop or (),
        ignore_eos=bool(request.ignore_eos),
        new_tokens_min=request.min_tokens or 0,
        caller=caller,
    )


def _sampling_of(request: ChatRequest) -> generation_pb2.Sampling:
    sampling = generation_pb2.Sampling(
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=request.top_k,
        min_p=request.min_p,
        # Any number names a seed; negative ones keep their bits.
        seed=None if request.seed is None else request.seed % 2**64,
    )
    if sampling.HasField("top_p") and sampling.top_p == 0:
        # No probability mass leaves the best token alone. Asked after the rounding to 32 bits.
        sampling.ClearField("top_p")
        sampling.temperature = 0
    return sampling


def _message_of(message: Message) -> generation_pb2.ChatMessage:
    """Tool calls of earlier replies become text, so that the model sees what was asked before it sees the answer."""
    texts = [message.content] if message.content else []
    for call in message.tool_calls or ():
        texts.append(json.dumps({"name": call.function.name, "arguments": call.function.arguments}, ensure_ascii=False))
    return generation_pb2.ChatMessage(
        role=_ROLES.get(message.role, message.role), content="\n".join(texts), name=message.name or ""
    )
