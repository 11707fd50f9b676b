"""Which addresses a hub may send us to."""

import pytest
from swarm_core.egress import Door, is_public, make_door

HUB = make_door("https://hub.example", ["http://proxy.example:3128", "socks5://odd"], lambda host, port: {"10.9.8.7"})


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8"])
def test_the_public_internet_is_reached(address: str):
    assert is_public(address)
    assert HUB.why_address_refused((address, 443)) == ""


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.8.8",
        "0.0.0.0",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "169.254.169.254",
        "192.0.0.1",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "fd00:ec2::254",
        "ff02::1",
        "2001:db8::1",
        "localhost",
        "2130706433",
        "",
    ],
)
def test_what_lies_inside_is_refused_however_it_is_written(address: str):
    assert not is_public(address)
    assert "not of the public internet" in HUB.why_address_refused((address, 443))


@pytest.mark.parametrize("address", ["/run/docker.sock", b"\0abstract", None, ("8.8.8.8",)])
def test_a_socket_of_the_machine_is_no_place_to_fetch_from(address: object):
    assert HUB.why_address_refused(address) == "a socket of this machine"


def test_the_hub_and_the_proxy_of_the_operator_are_reached_on_their_ports_alone():
    assert HUB.why_address_refused(("10.9.8.7", 443)) == HUB.why_address_refused(("10.9.8.7", 3128)) == ""
    assert HUB.why_address_refused(("10.9.8.7", 22)) and HUB.why_address_refused(("10.9.8.8", 443))


@pytest.mark.parametrize(
    ("url", "is_refused"),
    [
        ("https://hub.example/a", False),
        ("https://storage.example/a", False),
        ("http://hub.example/a", True),
        ("http://storage.example/a", True),
        ("file:///etc/passwd", True),
        ("ftp://hub.example/a", True),
        ("https:///a", True),
        ("https://hub.example:x/a", True),
        ("gopher://127.0.0.1:6379/_x", True),
        ("", True),
    ],
)
def test_only_https_is_asked_of_others(url: str, is_refused: bool):
    assert bool(HUB.why_url_refused(url)) is is_refused


def test_a_hub_without_tls_is_itself_asked_without_it():
    door = make_door("http://127.0.0.1:8080", [], lambda host, port: {host})

    assert door.why_url_refused("http://127.0.0.1:8080/a") == ""
    assert door.why_url_refused("http://127.0.0.1:8081/a") and door.why_url_refused("http://localhost:8080/a")


@pytest.mark.parametrize("endpoint", ["", "file:///etc", "hub.example", "unix:///run/x", "http://"])
def test_an_endpoint_that_is_no_address_of_the_web_is_told(endpoint: str):
    with pytest.raises(ValueError, match="HF_ENDPOINT="):
        make_door(endpoint, [], lambda host, port: {host})


def test_a_door_tells_apart_what_it_was_made_from():
    assert isinstance(HUB, Door) and HUB.origin == ("https", "hub.example", 443)
