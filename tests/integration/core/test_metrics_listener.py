"""The HTTP listener that every process with figures shares."""

import socket
import urllib.error
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, Counter
from swarm_core.errors import BadRequest
from swarm_core.metrics_listener import SCRAPES_MAX, MetricsListener, check_metrics_listen


@pytest.fixture
def listening():
    registry = CollectorRegistry()
    Counter("silentswarm_things", "Things.", registry=registry).inc(3)
    listener = MetricsListener("127.0.0.1:0", registry)
    listener.start()
    yield listener
    listener.close()


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        return answer.read().decode()


def test_it_answers_with_the_figures_of_its_registry(listening):
    assert "silentswarm_things_total 3.0" in scrape(listening.port)
    assert listening.address == f"127.0.0.1:{listening.port}"


def test_nobody_answers_after_close_and_closing_again_is_harmless(listening):
    port = listening.port

    listening.close()
    listening.close()

    with pytest.raises(urllib.error.URLError):
        scrape(port)


def test_clients_that_say_nothing_keep_at_most_a_few_threads(listening):
    mute = [socket.create_connection(("127.0.0.1", listening.port), timeout=5) for _ in range(SCRAPES_MAX)]

    with pytest.raises(OSError):
        scrape(listening.port)

    for connection in mute:
        connection.close()
    for _ in range(50):
        try:
            assert "silentswarm_things_total" in scrape(listening.port)
            break
        except OSError:
            continue
    else:
        raise AssertionError("the places of clients that left were not given back")


def test_a_port_in_use_is_refused_in_words(listening):
    with pytest.raises(BadRequest, match=r"SWARM_METRICS_LISTEN=127.0.0.1:\d+: cannot listen there \(address already"):
        MetricsListener(f"127.0.0.1:{listening.port}", CollectorRegistry()).start()


@pytest.mark.parametrize("listen", ["", "127.0.0.1:0", "localhost:9464", "[::1]:9464"])
def test_off_and_loopback_are_allowed(listen):
    assert check_metrics_listen(listen, allow_insecure=False) is None


def test_beyond_this_machine_must_be_asked_for():
    with pytest.raises(BadRequest, match=r"SWARM_METRICS_LISTEN: will not listen on 0\.0\.0\.0"):
        check_metrics_listen("0.0.0.0:9464", allow_insecure=False)

    assert check_metrics_listen("0.0.0.0:9464", allow_insecure=True) is None


def test_what_is_no_address_is_refused():
    with pytest.raises(BadRequest, match="'9464' is not HOST:PORT"):
        check_metrics_listen("9464", allow_insecure=False)
