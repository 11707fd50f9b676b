"""A benchmark's figures as a page for people and as a JSON document. Measures nothing."""

from dataclasses import asdict

from rich.console import Console

from swarm_cli.bench.figures import REPLY_PARTS, TOKEN_PARTS, Figures, Spread, stage_parts
from swarm_cli.bench.load import Load
from swarm_cli.terminal import table_of

NAMES = {
    "queue_ms": "queue",
    "prefill_ms": "prefill",
    "decode_ms": "decode",
    "total_ms": "in all",
    "sample_ms": "sampling",
    "wait_ms": "waiting",
    "link_ms": "links",
}


def print_report(console: Console, load: Load, figures: Figures) -> None:
    """Everything, in the order in which it is asked about: how fast, how evenly, what failed, where the time went."""
    console.print(_headline(figures), markup=False)
    console.print()
    table = table_of("", "p50", "p95", "p99", "MOST")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, spread in (("first token", figures.first_token), ("between tokens", figures.between)):
        table.add_row(name, *_cells(spread))
    console.print(table)
    console.print()
    for name, words in _facts(load, figures):
        console.print(f"{name:<17}{words}", markup=False)


def document_of(load: Load, url: str, figures: Figures) -> dict[str, object]:
    """The JSON: what was asked and what came; times in ms where the name says so, else in seconds."""
    asked = {
        "url": url,
        "model": load.model,
        "streams": load.streams,
        "prompt_tokens": load.prompt_tokens,
        "new_tokens": load.new_tokens,
        "requests": load.requests,
        "duration_s": load.duration_s,
    }
    return {"asked": asked, **asdict(figures), "longest_gap_ms": figures.longest_gap_ms}


def _headline(figures: Figures) -> str:
    counts = f"{figures.whole} of {figures.requests} replies whole"
    if figures.cut:
        counts += f", {figures.cut} cut at the end"
    prompt = f"{figures.prompt_tokens_mean:.0f} prompt tokens" if figures.whole else "prompts not counted"
    return f"{counts} in {figures.duration_s:.1f} s, {prompt} and {figures.new_tokens} new tokens in all"


def _facts(load: Load, figures: Figures) -> list[tuple[str, str]]:
    per_stream = figures.stream_tokens_per_s
    speed = f"{figures.tokens_per_s:.1f} in all"
    if per_stream is not None:
        speed += f", {per_stream:.1f} per stream (median of {load.streams} at once)"
    gap = figures.longest_gap_ms
    facts = [
        ("tokens/s", speed),
        ("prompt tokens/s", f"{figures.prompt_tokens_per_s:.1f} in all"),
        ("longest gap", "-" if gap is None else _ms(gap)),
        ("failures", ", ".join(f"{count} {word}" for word, count in figures.failures.items()) or "none"),
    ]
    return facts + _server_facts(figures)


def _server_facts(figures: Figures) -> list[tuple[str, str]]:
    """The server's own split, when it tells one; means over whole replies."""
    server = figures.server
    if not server:
        return []
    reply = [f"{NAMES[part]} {_ms(server[part])}" for part in REPLY_PARTS if part in server]
    token = [f"stage {index} {_ms(ms)}" for index, ms in enumerate(stage_parts(server))]
    token += [f"{NAMES[part]} {_ms(server[part])}" for part in TOKEN_PARTS if part in server]
    facts = [("server, a reply", ", ".join(reply)), ("server, a token", ", ".join(token))]
    rest = [f"{route} x {count}" for route, count in figures.routes.items()]
    if "batch_mean" in server:
        rest.append(f"{server['batch_mean']:.1f} replies a step")
    return [*facts, ("links", ", ".join(rest))] if rest else facts


def _cells(spread: Spread | None) -> list[str]:
    if spread is None:
        return ["-"] * 4
    return [_ms(value) for value in (spread.p50, spread.p95, spread.p99, spread.most)]


def _ms(value: float) -> str:
    """Three digits that matter: 0.12 ms, 12.3 ms, 1234 ms."""
    return f"{value:.2f} ms" if value < 10 else f"{value:.1f} ms" if value < 1000 else f"{value:.0f} ms"
