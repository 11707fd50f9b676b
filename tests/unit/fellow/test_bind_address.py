"""Where stages listen: an address, an interface, or whichever overlay network there is."""

import pytest
from swarm_core.errors import BadRequest
from swarm_fellow.host.address import bind_address, read_interfaces

HOME = {"lo": ["127.0.0.1", "::1"], "eth0": ["192.168.1.5", "2001:db8::5"]}
TAILSCALE = {**HOME, "tailscale0": ["fd7a:115c:a1e0::9", "100.101.102.103"]}
WIREGUARD = {**HOME, "wg0": ["10.8.0.2"]}


@pytest.mark.parametrize(
    ("setting", "interfaces", "address"),
    [
        ("192.168.1.5", HOME, "192.168.1.5"),
        ("0.0.0.0", HOME, "0.0.0.0"),
        ("", HOME, ""),
        ("attic.example", HOME, "attic.example"),
        ("eth0", HOME, "192.168.1.5"),
        ("wg0", WIREGUARD, "10.8.0.2"),
        ("mesh", WIREGUARD, "10.8.0.2"),
        ("mesh", TAILSCALE, "100.101.102.103"),
        ("mesh", {**HOME, "utun4": ["100.64.0.9"]}, "100.64.0.9"),
    ],
)
def test_the_address_behind_a_setting(setting, interfaces, address):
    """On a Mac Tailscale's interface is a nameless utun: its network tells."""
    assert bind_address(setting, interfaces) == address


def test_a_machine_outside_of_any_overlay_is_told_what_it_has():
    with pytest.raises(BadRequest, match=r"SWARM_RING_BIND_HOST=mesh: .* it has: lo 127\.0\.0\.1, ::1; eth0 192"):
        bind_address("mesh", HOME)
    with pytest.raises(BadRequest, match="no address in the interface wg0"):
        bind_address("wg0", {**HOME, "wg0": []})


def test_this_machine_has_its_loopback():
    assert any("127.0.0.1" in addresses for addresses in read_interfaces().values())
