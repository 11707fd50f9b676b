"""One request, from its body to its reply's end. A client that leaves ends its generations on every stage."""

import hashlib
import re
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import partial

import structlog
from aiohttp import web
from silentswarm.leader.v1 import inference_pb2
from swarm_core.clock import Clock

from swarm_gateway.bodies import read_body
from swarm_gateway.config import GatewayConfig
from swarm_gateway.endpoints import CALLER
from swarm_gateway.leader import Leader
from swarm_gateway.metrics import GatewayMetrics, ReplyMeter
from swarm_gateway.openai.keys.flow import KeyedReplies
from swarm_gateway.openai.reading.documents import read_apart
from swarm_gateway.openai.replies.asked import Asked, ReplyNames
from swarm_gateway.openai.replies.choices import choice_events
from swarm_gateway.openai.replies.deliver import deliver_stream, deliver_whole
from swarm_gateway.openai.replies.pieces import Piece, reply_pieces
from swarm_gateway.problems import bad_request

_KEY = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?")
Read = Callable[[bytes], Asked]


class ReplyFlow:
    """Replies over the leader's Inference.Generate."""

    def __init__(self, config: GatewayConfig, leader: Leader, clock: Clock, metrics: GatewayMetrics) -> None:
        self._config = config
        self._leader = leader
        self._clock = clock
        self._metrics = metrics
        self._keyed = KeyedReplies(clock.monotonic_s)

    async def answer(self, read: Read, request: web.Request, raw_variables: Mapping[str, str]) -> web.StreamResponse:
        """One request of the endpoint that `read` reads. Raises SwarmError and HttpProblem until something was sent."""
        meter = self._metrics.reply()
        try:
            key = idempotency_key(request.headers.getall("Idempotency-Key", []))
            body = await read_body(request, self._config.body_bytes_max, self._config.read_timeout_s)
            asked, fingerprint = await read_apart(partial(_read_named, read, bool(key)), body)
            caller = request[CALLER]
            structlog.contextvars.bind_contextvars(caller=caller)  # so that an operator can give this one a weight
            begin = partial(self._pieces, asked, caller, meter)
            pieces, is_known = self._keyed.follow(caller, key, fingerprint, begin) if key else (begin(), False)
        except BaseException as error:
            meter.failed() if isinstance(error, Exception) else meter.gone()
            raise
        headers = {"Idempotent-Replayed": "true"} if is_known else {}
        if asked.is_streamed:
            return await deliver_stream(request, pieces, headers, self._config, self._metrics)
        return await deliver_whole(pieces, headers)

    def _pieces(self, asked: Asked, caller: str, meter: ReplyMeter) -> AsyncGenerator[Piece, None]:
        """Begins nothing before it is read."""
        name = uuid.uuid4().hex
        names = ReplyNames(asked.id_prefix + name, asked.model, int(self._clock.unix_s()))
        structlog.contextvars.bind_contextvars(completion=names.completion_id)
        for generation in asked.generations:
            generation.caller = caller
        orders = [
            inference_pb2.GenerateRequest(
                model_id=asked.model,
                generation=generation,
                request_id=f"{names.completion_id}-{at}" if at else names.completion_id,
            )
            for at, generation in enumerate(asked.generations)
        ]
        events = choice_events(self._leader, orders, self._config.request_timeout_s, self._config.resume_s)
        return reply_pieces(asked, asked.word(names), events, meter)


def _read_named(read: Read, with_name: bool, body: bytes) -> tuple[Asked, bytes]:
    """What is asked, and what tells it from other requests with the same key."""
    asked = read(body)
    return asked, hashlib.sha256(asked.id_prefix.encode() + body).digest() if with_name else b""


def idempotency_key(given: Sequence[str]) -> str:
    """The key, "" for none. Raises HttpProblem for one that is none."""
    if not given:
        return ""
    if len(given) > 1 or not _KEY.fullmatch(given[0]):
        raise bad_request("an Idempotency-Key has 1..255 printable ASCII characters", code="invalid_value")
    return given[0]
