"""POST /v1/chat/completions: one generation, whole or streamed. A client that leaves ends it on every stage."""

import asyncio
import uuid
from collections.abc import Mapping

import structlog
from aiohttp import web
from silentswarm.core.v1 import generation_pb2
from silentswarm.leader.v1 import inference_pb2
from swarm_core.clock import Clock
from swarm_core.errors import StageFailed, SwarmError
from swarm_rpc.reasons import error_from_proto

from swarm_gateway.bodies import read_body
from swarm_gateway.callers import caller_of
from swarm_gateway.config import GatewayConfig
from swarm_gateway.leader import Events, Leader
from swarm_gateway.metrics import GatewayMetrics, ReplyMeter
from swarm_gateway.openai import frames, shapes
from swarm_gateway.openai.chat_request import ChatRequest, parse_chat_request
from swarm_gateway.openai.generation import generation_of
from swarm_gateway.problems import HttpProblem, error_document, json_response, problem_of
from swarm_gateway.sse import EventStream, ReaderGone

log = structlog.get_logger()
GenerateEvents = Events[inference_pb2.GenerateEvent]
Event = generation_pb2.GenerationEvent


class ChatHandlers:
    """Chat completions over the leader's Inference.Generate."""

    def __init__(self, config: GatewayConfig, leader: Leader, clock: Clock, metrics: GatewayMetrics) -> None:
        self._config = config
        self._leader = leader
        self._clock = clock
        self._metrics = metrics

    async def complete(self, request: web.Request, raw_variables: Mapping[str, str]) -> web.StreamResponse:
        """One request. Raises SwarmError and HttpProblem until something was sent."""
        meter = self._metrics.reply()
        try:
            return await self._complete(request, meter)
        except asyncio.CancelledError:
            meter.gone()
            raise
        except Exception:
            meter.failed()
            raise

    async def _complete(self, request: web.Request, meter: ReplyMeter) -> web.StreamResponse:
        body = await read_body(request, self._config.body_bytes_max, self._config.read_timeout_s)
        chat = parse_chat_request(body)
        names = shapes.ReplyNames(f"chatcmpl-{uuid.uuid4().hex}", chat.model, int(self._clock.unix_s()))
        caller = caller_of(request.headers.get("Authorization", ""), request.remote or "", self._config.caller_secret)
        structlog.contextvars.bind_contextvars(caller=caller)  # so that an operator can give this one a weight
        order = inference_pb2.GenerateRequest(
            model_id=chat.model, generation=generation_of(chat, caller), request_id=names.completion_id
        )
        async with self._leader.generate(order, self._config.request_timeout_s) as events:
            if chat.stream:
                return await self._streamed(request, names, chat, events, meter)
            return await self._whole(names, events, meter)

    async def _whole(self, names: shapes.ReplyNames, events: GenerateEvents, meter: ReplyMeter) -> web.Response:
        texts: list[str] = []
        while not (event := await next_event(events)).HasField("done"):
            if event.HasField("started"):
                meter.started(names.model, event.started.prompt_tokens)
            elif event.HasField("tokens"):
                meter.tokens(len(event.tokens.ids))
                texts.append(event.tokens.text)
        meter.done(event.done.finish_reason)
        return json_response(shapes.completion(names, "".join(texts), event.done))

    async def _streamed(
        self,
        request: web.Request,
        names: shapes.ReplyNames,
        chat: ChatRequest,
        events: GenerateEvents,
        meter: ReplyMeter,
    ) -> web.StreamResponse:
        stream = EventStream(request, self._config.keep_alive_s, self._config.write_timeout_s)
        try:
            with stream.watched():
                try:
                    await self._say_reply(stream, names, chat, events, meter)
                except (SwarmError, HttpProblem) as error:
                    if not stream.is_open:
                        raise
                    meter.failed()
                    await _say_failure(stream, names, error)
        except ReaderGone as gone:
            meter.gone()
            log.info("reader gone", completion=names.completion_id, why=str(gone))
        return stream.response

    async def _say_reply(
        self,
        stream: EventStream,
        names: shapes.ReplyNames,
        chat: ChatRequest,
        events: GenerateEvents,
        meter: ReplyMeter,
    ) -> None:
        """One reply, whole. Raises SwarmError, HttpProblem, ReaderGone.

        Nothing is said before it starts, so that a refusal is a plain 4xx or 5xx; but a wait that lasts longer than the
        reader and the proxies between should endure silence opens the stream.
        """
        event = await next_event(events)
        while event.HasField("queued"):
            await stream.stand(shapes.standing(event.queued))
            event = await next_event(events)
        await stream.open()
        with self._metrics.streams.track_inprogress():
            await _relay(stream, names, chat, event, events, meter)


async def _relay(
    stream: EventStream,
    names: shapes.ReplyNames,
    chat: ChatRequest,
    event: Event,
    events: GenerateEvents,
    meter: ReplyMeter,
) -> None:
    """Everything from the start to the end, as chunks. Raises SwarmError, HttpProblem, ReaderGone."""
    await stream.send_framed(frames.event_of(shapes.role_chunk(names, chat.include_usage)))
    texts = frames.TextFrames(names, chat.include_usage)
    while (kind := event.WhichOneof("event")) != "done":
        if kind == "tokens":
            batch = event.tokens
            meter.tokens(len(batch.ids))
            if text := batch.text:
                await stream.send_framed(texts.frame(text))
                meter.said()
        elif kind == "started":
            meter.started(names.model, event.started.prompt_tokens)
        event = await next_event(events)
    end = frames.event_of(shapes.last_chunk(names, event.done, chat.include_usage))
    if chat.include_usage:
        end += frames.event_of(shapes.usage_chunk(names, event.done))
    await stream.send_framed(end + frames.DONE)
    await stream.close()
    meter.done(event.done.finish_reason)


async def next_event(events: GenerateEvents) -> Event:
    """The next event of a reply. Raises SwarmError for a failure, and for a reply that ends without its Done."""
    message = await events.read()
    if message is None:
        raise StageFailed("the reply broke off before its end")
    event = message.event
    if event.HasField("failed"):
        failed = event.failed
        raise error_from_proto(failed.reason, failed.message, failed.metadata)
    return event


async def _say_failure(stream: EventStream, names: shapes.ReplyNames, error: SwarmError | HttpProblem) -> None:
    """A failure after the start: an error event and the end, without [DONE], which would mean success.

    Raises ReaderGone.
    """
    log.warning("reply failed", completion=names.completion_id, why=str(error))
    problem = error.problem if isinstance(error, HttpProblem) else problem_of(error)
    await stream.send_framed(frames.event_of(error_document(problem)))
    await stream.close()
