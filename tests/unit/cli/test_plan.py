"""Which processes `swarm up` starts, and with what."""

import dataclasses
from pathlib import Path

import pytest
from swarm_cli.serving import TransportChoice
from swarm_cli.up.options import Machine, UpOptions
from swarm_cli.up.plan import (
    fellow_names,
    ignored_variables,
    metrics_urls,
    plan_chat,
    plan_children,
    scrape_targets,
)
from swarm_cli.up.ports import choose_free_ports

OPTIONS = UpOptions(
    fellows=2,
    stages=2,
    model=None,
    transport=TransportChoice.AUTO,
    http_port=8081,
    grpc_port=50552,
    data_dir=Path("/state"),
    model_dir=None,
    no_model=False,
    ready_file=None,
    once=None,
    chat=False,
)
MACHINE = Machine(cpu_count=6, memory_free_bytes=10 * 2**30)


def test_the_leader_comes_first_then_the_gateway_then_each_fellow():
    children = plan_children(OPTIONS, MACHINE, {})

    assert [child.name for child in children] == ["leader", "gateway", "fellow-1", "fellow-2"]
    assert [child.log for child in children] == [Path(f"/state/logs/{child.name}.log") for child in children]


def test_every_process_listens_on_loopback_and_meets_at_the_chosen_ports():
    leader, gateway, fellow, _ = plan_children(OPTIONS, MACHINE, {"SWARM_LEADER_HOST": "0.0.0.0"})

    assert (leader.environ["SWARM_LEADER_HOST"], leader.environ["SWARM_GRPC_PORT"]) == ("127.0.0.1", "50552")
    assert (gateway.environ["SWARM_GATEWAY_HOST"], gateway.environ["SWARM_HTTP_PORT"]) == ("127.0.0.1", "8081")
    assert gateway.environ["SWARM_LEADER"] == "127.0.0.1:50552"
    assert fellow.arguments[-6:] == (
        *("--leader", "127.0.0.1:50552"),
        *("--name", "fellow-1"),
        *("--state-dir", "/state/fellow-1"),
    )


def test_fellows_share_processors_and_memory_and_own_their_caches():
    _, _, first, second = plan_children(OPTIONS, MACHINE, {})

    assert first.environ["SWARM_STAGE_THREADS"] == "3"
    assert first.environ["SWARM_FELLOW_MEMORY_MB"] == "4096"
    assert first.environ["SWARM_FELLOW_MODEL_CACHE"] == "/state/fellow-1/models"
    assert second.environ["SWARM_FELLOW_MODEL_CACHE"] == "/state/fellow-2/models"


@pytest.mark.parametrize("name", ["SWARM_STAGE_THREADS", "SWARM_FELLOW_MEMORY_MB", "SWARM_MODEL_IDLE_UNLOAD_S"])
def test_what_the_environment_says_about_a_fellow_wins(name: str):
    fellow = plan_children(OPTIONS, MACHINE, {name: "7"})[2]

    assert fellow.environ[name] == "7"


def test_more_fellows_than_processors_still_get_a_thread_each():
    many = dataclasses.replace(OPTIONS, fellows=9)

    assert {child.environ["SWARM_STAGE_THREADS"] for child in plan_children(many, MACHINE, {})[2:]} == {"1"}
    assert fellow_names(many)[-1] == "fellow-9"


def test_the_catalog_is_the_leaders_own_unless_a_folder_is_given():
    shared = dataclasses.replace(OPTIONS, model_dir=Path("/shared"))

    assert "SWARM_SERVABLE_MODELS_ROOT" not in plan_children(OPTIONS, MACHINE, {})[0].environ
    assert plan_children(shared, MACHINE, {})[0].environ["SWARM_SERVABLE_MODELS_ROOT"] == "/shared"


def test_what_the_environment_says_of_another_leaders_tls_reaches_no_process():
    """Someone who administers a swarm elsewhere has these exported, and tries `swarm up` beside it."""
    elsewhere = {
        "SWARM_LEADER_CA": "sha256:" + "ab" * 32,
        "SWARM_TLS": "1",
        "SWARM_TLS_CERT": "/c",
        "SWARM_TLS_KEY": "/k",
    }
    children = plan_children(OPTIONS, MACHINE, elsewhere)

    assert [set(child.environ) & set(elsewhere) for child in children] == [set()] * len(children)
    assert ignored_variables(elsewhere) == list(elsewhere)


def test_addresses_of_the_environment_that_have_no_effect_are_known():
    environ = {"SWARM_LEADER_HOST": "0.0.0.0", "SWARM_GRPC_PORT": "", "SWARM_STAGE_THREADS": "3"}

    assert ignored_variables(environ) == ["SWARM_LEADER_HOST"]
    assert ignored_variables({"SWARM_METRICS_LISTEN": "127.0.0.1:9100"}) == ["SWARM_METRICS_LISTEN"]


def test_every_process_answers_prometheus_at_a_port_of_its_own():
    measured = dataclasses.replace(OPTIONS, metrics_ports={"leader": 9101, "fellow-1": 9102, "fellow-2": 9103})
    leader, _, *fellows = plan_children(measured, MACHINE, {"SWARM_METRICS_LISTEN": "127.0.0.1:9100"})

    assert leader.environ["SWARM_METRICS_LISTEN"] == "127.0.0.1:9101"
    assert [fellow.environ["SWARM_METRICS_LISTEN"] for fellow in fellows] == ["127.0.0.1:9102", "127.0.0.1:9103"]
    assert metrics_urls(measured) == {
        "leader": "http://127.0.0.1:9101/metrics",
        "gateway": "http://127.0.0.1:8081/metrics",
        "fellow-1": "http://127.0.0.1:9102/metrics",
        "fellow-2": "http://127.0.0.1:9103/metrics",
    }
    assert scrape_targets(measured)[1] == {"targets": ["127.0.0.1:8081"], "labels": {"process": "gateway"}}


def test_without_metrics_no_process_takes_a_port_for_them_whatever_the_environment_says():
    children = plan_children(OPTIONS, MACHINE, {"SWARM_METRICS_LISTEN": "127.0.0.1:9100"})

    assert {child.environ["SWARM_METRICS_LISTEN"] for child in children if child.name != "gateway"} == {""}
    assert metrics_urls(OPTIONS) == {} and scrape_targets(OPTIONS) == []


def test_free_ports_are_all_different():
    chosen = choose_free_ports([f"fellow-{number}" for number in range(20)], taken=(8081, 50552))

    assert len({*chosen.values(), 8081, 50552}) == 22


def test_a_chat_shares_the_terminal():
    chat = plan_chat(OPTIONS, "tiny", {})

    assert chat.log is None
    assert chat.arguments[-3:] == ("tiny", "--leader", "127.0.0.1:50552")
