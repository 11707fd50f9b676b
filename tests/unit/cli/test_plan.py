"""Which processes `swarm up` starts, and with what."""

import dataclasses
from pathlib import Path

import pytest
from swarm_cli.serving import TransportChoice
from swarm_cli.up.options import Machine, UpOptions
from swarm_cli.up.plan import fellow_names, ignored_variables, plan_chat, plan_children

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


def test_addresses_of_the_environment_that_have_no_effect_are_known():
    environ = {"SWARM_LEADER_HOST": "0.0.0.0", "SWARM_GRPC_PORT": "", "SWARM_STAGE_THREADS": "3"}

    assert ignored_variables(environ) == ["SWARM_LEADER_HOST"]


def test_a_chat_shares_the_terminal():
    chat = plan_chat(OPTIONS, "tiny", {})

    assert chat.log is None
    assert chat.arguments[-3:] == ("tiny", "--leader", "127.0.0.1:50552")
