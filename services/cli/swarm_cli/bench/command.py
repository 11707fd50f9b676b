"""`swarm bench`: reads options, puts load on an endpoint, prints what came of it. Decides only the exit code."""

import asyncio
import dataclasses
from typing import Annotated, Any

import typer
from swarm_core.errors import ModelNotFound, SwarmError

from swarm_cli.bench.figures import figures_of
from swarm_cli.bench.load import Load, Run, elapsed_s
from swarm_cli.bench.report import document_of, print_report
from swarm_cli.context import CommandContext, JsonOption
from swarm_cli.credential import given_token
from swarm_cli.failures import FAILED, INTERRUPTED, OK
from swarm_cli.terminal import err, out, print_json

STREAMS_MAX = 1024
REQUESTS_PER_STREAM = 4  # when neither --requests nor --duration says how long

StreamsOption = Annotated[int, typer.Option("--streams", min=1, max=STREAMS_MAX, help="Replies asked for at once.")]
PromptOption = Annotated[int, typer.Option("--prompt-tokens", min=1, help="About so many tokens of prompt.")]
NewOption = Annotated[int, typer.Option("--new-tokens", min=1, help="Exactly so many tokens of reply.")]
RequestsOption = Annotated[
    int | None, typer.Option("--requests", min=1, help="Replies in all; default 4 a stream.", show_default=False)
]
DurationOption = Annotated[
    float | None,
    typer.Option("--duration", metavar="SECONDS", min=0.1, help="End after so long.", show_default=False),
]


def bench_command(
    ctx: typer.Context,
    model: Annotated[str, typer.Option("--model", metavar="ID", help="Default: the one that is ready.")] = "",
    url: Annotated[
        str, typer.Option("--url", help="The OpenAI endpoint (SWARM_GATEWAY_URL).", show_default=False)
    ] = "",
    streams: StreamsOption = 8,
    prompt_tokens: PromptOption = 128,
    new_tokens: NewOption = 128,
    requests: RequestsOption = None,
    duration: DurationOption = None,
    json: JsonOption = False,
) -> None:
    """Measure a running swarm through its OpenAI endpoint. Ctrl-C prints what there is by then.

    Each stream asks again as soon as its reply is over. Replies are greedy and go on to --new-tokens past any end of
    turn. SWARM_API_KEY is sent as the bearer token.
    """
    context: CommandContext = ctx.obj
    bound = requests if requests is not None or duration is not None else REQUESTS_PER_STREAM * streams
    load = Load(model, streams, prompt_tokens, new_tokens, bound, duration)
    config = context.config
    address = url or config.gateway_url
    load, run = asyncio.run(_measure(load, address, given_token(config), config.reply_timeout_s))
    figures = figures_of(run.samples)
    if json or context.as_json:
        print_json(document_of(load, address, figures))
    else:
        print_report(out(), load, figures)
    for words in sorted({sample.words for sample in run.samples if sample.words})[:3]:
        err().print(f"error: {words}", style="red", markup=False)
    if run.is_interrupted:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(OK if figures.whole else FAILED)


async def _measure(load: Load, url: str, api_key: str, timeout_s: float) -> tuple[Load, Run]:
    """Find the model, learn how long its prompts are, put the load on. Raises SwarmError."""
    from swarm_cli.bench.endpoint import Endpoint  # aiohttp, for this command alone
    from swarm_cli.bench.load import measure_words, put_load

    console = err()
    async with Endpoint(url, api_key, load.streams, timeout_s) as endpoint:
        load = dataclasses.replace(load, model=choose_model(await endpoint.models(), load.model))
        words = await measure_words(endpoint, load)
        asked = f"{load.prompt_tokens} prompt and {load.new_tokens} new tokens each"
        told = f"{load.model} at {endpoint.url}: {load.streams} streams, {asked}, {_bounds(load)}"
        console.print(told, markup=False)
        with console.status("") if console.is_terminal else _Silent() as status:
            run = await put_load(endpoint, load, words, lambda run: status.update(_progress(run, load)))
    return load, run


def choose_model(models: list[dict[str, Any]], asked: str) -> str:
    """The model asked for, or the only one that is ready. Raises ModelNotFound, SwarmError."""
    names = [str(model.get("id", "")) for model in models]
    if asked:
        if asked not in names:
            raise ModelNotFound(f"{asked} is not served here; there are: {', '.join(names) or 'none'}")
        return asked
    # Other servers than ours do not tell a state: what they list, they serve.
    ready = [str(model["id"]) for model in models if (model.get("swarm") or {}).get("state", "ready") == "ready"]
    if len(ready) != 1:
        raise SwarmError(f"--model must say which: {', '.join(ready) or 'none is ready'}")
    return ready[0]


def _bounds(load: Load) -> str:
    bounds = [f"{load.requests} replies"] if load.requests is not None else []
    bounds += [f"{load.duration_s:g} s"] if load.duration_s is not None else []
    return " or ".join(bounds)


def _progress(run: Run, load: Load) -> str:
    whole = sum(1 for sample in run.samples if sample.is_whole)
    failed = len(run.samples) - whole
    told = f"{whole} replies" + (f", {failed} failed" if failed else "")
    return f"{told} in {elapsed_s(run):.0f} s; Ctrl-C ends it"


class _Silent:
    """A status line nobody sees."""

    def __enter__(self) -> "_Silent":
        return self

    def __exit__(self, *failure: object) -> None: ...

    def update(self, words: str) -> None: ...
