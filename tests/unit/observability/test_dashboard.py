"""The dashboard, the page and the registries of all processes name the same figures."""

import asyncio
import json
import re
from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from silentswarm.core.v1 import stage_pb2
from swarm_fellow.metrics import FellowMetrics, FellowReadings
from swarm_gateway.metrics import GatewayMetrics
from swarm_leader.metrics.replies import ReplyMetrics
from swarm_leader.metrics.state import State, make_loop_lag, make_registry

from tests.architecture.code_tree import ROOT

DASHBOARD = ROOT / "deploy" / "grafana" / "silentswarm.json"
PAGE = ROOT / "docs" / "observability.md"
NAME = re.compile(r"\b(?:silentswarm|process)_\w+")
# What a dashboard of serving must show.
MAIN = {
    "silentswarm_num_requests_running",
    "silentswarm_num_requests_waiting",
    "silentswarm_kv_cache_usage_perc",
    "silentswarm_time_to_first_token_seconds_bucket",
    "silentswarm_inter_token_latency_seconds_bucket",
    "silentswarm_e2e_request_latency_seconds_bucket",
    "silentswarm_prompt_tokens_total",
    "silentswarm_generation_tokens_total",
    "silentswarm_request_success_total",
    "silentswarm_request_failure_total",
    "silentswarm_fellows",
    "silentswarm_fellow_stage_busy_seconds_total",
    "silentswarm_gateway_time_to_first_token_seconds_bucket",
    "silentswarm_gateway_event_loop_lag_seconds_bucket",
    "silentswarm_fellow_event_loop_lag_seconds_bucket",
    "silentswarm_leader_event_loop_lag_seconds_bucket",
}


def fellow_registry() -> CollectorRegistry:
    """A fellow's, with nothing behind it."""
    none = {name: lambda: 0 for name in FellowReadings.__dataclass_fields__ if name != "statuses"}
    status = stage_pb2.StageStatus(memory_bytes=1, kv_tokens_max=2)
    return FellowMetrics(FellowReadings(statuses=lambda: [status], **none)).registry


def leader_registry() -> CollectorRegistry:
    """A leader's, with nothing behind it. Needs a running loop."""
    registry = make_registry(lambda: State(relay_frames=0, relay_bytes=0, relay_lanes=0))
    ReplyMetrics(registry)
    make_loop_lag(registry)
    return registry


async def families() -> list[Metric]:
    """Every family of ours, of every process. The leader reads its state in the loop, so it is scraped beside it."""
    registries = [leader_registry(), GatewayMetrics(lambda: 0.0).registry, fellow_registry()]
    scraped = await asyncio.to_thread(lambda: [family for registry in registries for family in registry.collect()])
    assert scraped
    return scraped


def series_of(family: Metric) -> set[str]:
    """The names a query may use."""
    endings = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
    return {family.name + ending for ending in endings}


def queries(document: dict) -> Iterable[str]:
    """Every PromQL text of a dashboard."""
    for panel in document["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    for variable in document["templating"]["list"]:
        yield from ([variable["query"]["query"]] if variable["type"] == "query" else [])


async def test_every_figure_of_the_dashboard_is_one_of_ours_and_the_main_ones_are_shown():
    known = {name for family in await families() for name in series_of(family)}
    shown = {name for query in queries(json.loads(DASHBOARD.read_text())) for name in NAME.findall(query)}

    assert shown - known == set()
    assert MAIN - shown == set()


async def test_the_page_names_every_figure_and_no_other():
    ours = [family for family in await families() if family.name.startswith("silentswarm_")]
    named = {family.name + ("_total" if family.type == "counter" else "") for family in ours}
    rows = re.findall(r"^\| `(silentswarm_\w+)` \| ([\w, ]*) ?\|", PAGE.read_text(), re.MULTILINE)

    assert {name for name, _ in rows} == named
    assert len(rows) == len(named)


async def test_every_figure_has_its_labels_on_the_page_and_none_could_name_a_person():
    page = dict(re.findall(r"^\| `(silentswarm_\w+)` \| ([\w, ]*) ?\|", PAGE.read_text(), re.MULTILINE))
    for family in await families():
        for sample in family.samples:
            if sample.name in page:
                told = {label.strip() for label in page[sample.name].split(",") if label.strip()}
                assert set(sample.labels) == told, sample.name
            assert not set(sample.labels) & {"caller", "user", "prompt", "token", "address"}


def test_the_dashboard_asks_for_its_data_source_and_can_be_imported():
    document = json.loads(DASHBOARD.read_text())
    panels = [panel for panel in document["panels"] if panel["type"] != "row"]
    ids = [panel["id"] for panel in document["panels"]]
    places = [tuple(panel["gridPos"][side] for side in "xy") for panel in document["panels"]]

    assert document["schemaVersion"] >= 36 and document["title"] and document["uid"]
    assert {variable["name"] for variable in document["templating"]["list"]} == {"datasource", "model_name"}
    assert {panel["datasource"]["uid"] for panel in panels} == {"${datasource}"}
    assert len(set(ids)) == len(ids) and len(set(places)) == len(places)
    assert all(panel["description"] and panel["targets"] for panel in panels)
    assert all(
        query.count(left) == query.count(right) for query in queries(document) for left, right in ("()", "{}", "[]")
    )
