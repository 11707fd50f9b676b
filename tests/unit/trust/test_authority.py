"""The authority: made once, kept closed, and what it signs."""

import stat
from concurrent.futures import ThreadPoolExecutor

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st
from swarm_core.clock import ManualClock
from swarm_core.errors import BadRequest
from swarm_leader.trust.authority import DAY_S, open_authority
from swarm_leader.trust.identity import LeaderIdentity, RenewedIdentity, names_of_host
from swarm_leader.trust.requests import REQUEST_BYTES_MAX, read_request
from swarm_rpc.tls import LEADER_NAME, fellow_name, is_own_root

CLOCK = ManualClock(unix_s=1.8e9)


def request_of(key, names: tuple[str, ...] = (), encoding=serialization.Encoding.DER) -> bytes:
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "leader.silentswarm.internal")])
    )
    if names:
        wanted = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
        builder = builder.add_extension(wanted, critical=False)
    digest = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(key, digest).public_bytes(encoding)


def names_in(pem: bytes) -> list[str]:
    leaf = x509.load_pem_x509_certificate(pem)
    return [str(name.value) for name in leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value]


def test_it_is_made_once_closed_to_others_and_opened_again(tmp_path):
    first = open_authority(tmp_path, CLOCK)
    again = open_authority(tmp_path, CLOCK)

    assert first.pin == again.pin
    assert stat.S_IMODE((tmp_path / "authority.pem").stat().st_mode) == 0o600
    assert (tmp_path / "roots.pem").read_bytes() == first.roots and is_own_root(first.roots)
    assert b"PRIVATE" not in first.roots


def test_of_many_that_make_it_at_once_all_get_the_same(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        pins = set(pool.map(lambda _: open_authority(tmp_path, CLOCK).pin, range(16)))

    assert len(pins) == 1
    assert sorted(file.name for file in tmp_path.iterdir()) == ["authority.pem", "roots.pem"]


def test_a_key_that_others_could_read_is_closed(tmp_path):
    open_authority(tmp_path, CLOCK)
    (tmp_path / "authority.pem").chmod(0o644)
    open_authority(tmp_path, CLOCK)

    assert stat.S_IMODE((tmp_path / "authority.pem").stat().st_mode) == 0o600


@pytest.mark.parametrize("broken", [b"", b"not PEM", b"cut"])
def test_a_broken_file_is_refused_and_never_replaced(tmp_path, broken):
    file = tmp_path / "authority.pem"
    open_authority(tmp_path, CLOCK)
    whole = file.read_bytes()
    file.write_bytes(whole[:100] if broken == b"cut" else broken)
    before = file.read_bytes()

    with pytest.raises(BadRequest, match="no certificate authority"):
        open_authority(tmp_path, CLOCK)
    assert file.read_bytes() == before


def test_a_leaf_is_backdated_and_ends_with_the_year_and_never_after_the_root(tmp_path):
    clock = ManualClock(unix_s=1.8e9)
    authority = open_authority(tmp_path, clock)
    leaf = x509.load_pem_x509_certificate(authority.issue_identity([LEADER_NAME]).certificate)
    clock.advance(3600 * DAY_S)
    last = x509.load_pem_x509_certificate(authority.issue_identity([LEADER_NAME]).certificate)
    root = x509.load_pem_x509_certificate(authority.roots)

    assert leaf.not_valid_before_utc.timestamp() <= 1.8e9 - DAY_S
    assert 364 * DAY_S < leaf.not_valid_after_utc.timestamp() - 1.8e9 < 366 * DAY_S
    assert last.not_valid_after_utc == root.not_valid_after_utc


def test_the_leaders_leaf_is_made_anew_when_a_third_of_its_time_is_left(tmp_path):
    clock = ManualClock(unix_s=1.8e9)
    source = RenewedIdentity(open_authority(tmp_path, clock), [LEADER_NAME], clock)
    first = source()
    clock.advance(240 * DAY_S)
    same = source()
    clock.advance(5 * DAY_S)

    assert same == first
    assert source().certificate != first.certificate


def test_only_the_key_of_a_machines_request_is_used(tmp_path):
    """It asks for the leader's name and gets its own."""
    identity = LeaderIdentity(tmp_path, CLOCK, is_on=True)
    key = ec.generate_private_key(ec.SECP256R1())
    given_certificate = identity.certify_fellow("f7", request_of(key, (LEADER_NAME,)))
    leaf = x509.load_pem_x509_certificate(given_certificate.certificate)

    assert names_in(given_certificate.certificate) == [fellow_name("f7")]
    assert LEADER_NAME not in leaf.subject.rfc4514_string()
    assert leaf.public_key() == key.public_key()
    assert given_certificate.roots == identity.authority.roots


@pytest.mark.parametrize("is_on", [True, False])
def test_a_machine_that_asks_for_no_certificate_gets_none_and_nobody_does_without_tls(tmp_path, is_on):
    identity = LeaderIdentity(tmp_path, CLOCK, is_on)
    request = b"" if is_on else request_of(ec.generate_private_key(ec.SECP256R1()))

    assert identity.certify_fellow("f7", request).certificate == b""
    assert is_on or (identity.roots == b"" and identity.pin == "")


def test_a_listener_gets_the_names_it_asks_for_and_none_of_ours(tmp_path):
    identity = LeaderIdentity(tmp_path, CLOCK, is_on=True)
    request = request_of(ec.generate_private_key(ec.SECP256R1()), encoding=serialization.Encoding.PEM)
    issued = identity.certify_listener(request, ["chat.example", "10.0.0.7", "::1"])

    assert names_in(issued) == ["chat.example", "10.0.0.7", "::1"]
    for names in (
        [LEADER_NAME],
        [fellow_name("f1")],
        [LEADER_NAME.upper()],
        [],
        ["x"] * 21,
        ["a b"],
        ["-"],
        ["x." * 200],
    ):
        with pytest.raises(BadRequest):
            identity.certify_listener(request, names)


@pytest.mark.parametrize(
    "key",
    [
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP384R1()),
        rsa.generate_private_key(65537, 2048),
    ],
)
def test_usual_keys_are_certified(key):
    assert read_request(request_of(key)) == key.public_key()


def test_broken_requests_are_refused():
    good = bytearray(request_of(ec.generate_private_key(ec.SECP256R1())))
    forged = bytes(good[:-3]) + bytes([good[-3] ^ 1]) + bytes(good[-2:])
    weak = request_of(rsa.generate_private_key(65537, 1024))
    other = request_of(ed25519.Ed25519PrivateKey.generate())

    for request in (forged, weak, other, bytes(good[:-1]), b"-----BEGIN", b"\x00" * (REQUEST_BYTES_MAX + 1), b"x"):
        with pytest.raises(BadRequest):
            read_request(request)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_request_or_refused(request_bytes):
    with pytest.raises(BadRequest):
        read_request(request_bytes)


def test_every_interface_is_no_name():
    assert names_of_host("0.0.0.0") == names_of_host("::") == ()
    assert names_of_host("10.99.0.1") == ("10.99.0.1",) and names_of_host("leader.example") == ("leader.example",)


def test_own_files_have_no_pin_for_join_tokens(tmp_path):
    """The authority's root does not lead to them, so a machine could not follow it."""
    identity = LeaderIdentity(tmp_path, CLOCK, is_on=True, files=(tmp_path / "a", tmp_path / "b"))

    assert identity.pin == "" and identity.roots == identity.authority.roots
