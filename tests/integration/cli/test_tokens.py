"""`swarm tokens` and `swarm join-token`, and which token every command presents."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Ended
from tests.integration.cli.scripted_leader import ScriptedLeader

Swarm = Callable[..., Ended]


def leader_folder(tmp_path: Path, address: str, secret: str = "sk-swarm-of-the-leader") -> str:
    """The folder of a leader that says it listens there."""
    (tmp_path / "admin-token").write_text(secret + "\n")
    (tmp_path / "leader.address").write_text(address + "\n")
    return str(tmp_path)


def test_a_new_tokens_secret_is_alone_on_stdout(swarm: Swarm, leader: ScriptedLeader):
    ended = swarm("tokens", "create", "ann's phone", "--scope", "read", "--scope", "operate", "--expires", "30d")

    assert (ended.code, ended.out) == (0, "sk-swarm-shown-once\n")
    assert "tok-1: shown this once" in ended.err
    assert "From now on this swarm asks everyone for a token" in ended.err
    (asked,) = leader.made
    assert (asked.label, list(asked.scopes), asked.expires_in_s) == ("ann's phone", ["read", "operate"], 30 * 86_400)


def test_a_token_operates_and_holds_for_ever_unless_told_otherwise(swarm: Swarm, leader: ScriptedLeader):
    made = json.loads(swarm("--json", "tokens", "create", "bot").out)

    assert made["secret"] == "sk-swarm-shown-once"
    assert (list(leader.made[0].scopes), leader.made[0].expires_in_s) == (["operate"], 0)


def test_tokens_are_listed_with_what_they_used_and_never_a_secret(swarm: Swarm):
    ended, listed = swarm("tokens", "list"), swarm("tokens")

    header, line = ended.out.splitlines()
    assert header.split()[:4] == ["TOKEN", "LABEL", "SCOPES", "STATE"]
    assert line.startswith("tok-1  ann [phone]  read,operate  expires in ")
    assert line.split()[-3:] == ["12", "3.4k", "56.0k"]
    assert listed.out == ended.out
    assert json.loads(swarm("tokens", "list", "--json").out)["tokens"][0]["token_id"] == "tok-1"


def test_a_token_is_revoked_by_its_id(swarm: Swarm):
    done, unknown = swarm("tokens", "revoke", "tok-1"), swarm("tokens", "revoke", "tok-9")

    assert (done.code, done.out) == (0, "tok-1 is revoked\n")
    assert (unknown.code, "no token 'tok-9'" in unknown.err) == (2, True)


def test_self_says_who_one_is(swarm: Swarm, leader: ScriptedLeader):
    everyone = swarm("tokens", "self")
    leader.scope_needed = "admin"
    ann = swarm("tokens", "self")

    assert "asks nobody for a token" in everyone.out
    assert "ann [phone]" in ann.out


def test_a_missing_scope_is_named_with_the_way_to_get_it(swarm: Swarm, leader: ScriptedLeader):
    leader.scope_needed = "admin"

    ended = swarm("tokens", "create", "x")

    assert ended.code == 5
    assert "this needs a token with the scope admin; yours has read" in ended.err
    assert "`swarm tokens create LABEL --scope admin`" in ended.err


@pytest.mark.parametrize("span", ["", "soon", "0d", "-1d", "1w", "99999999999d"])
def test_a_span_that_cannot_be_read_is_told_by_example(swarm: Swarm, span: str):
    ended = swarm("join-token", "create", f"--expires={span}")

    assert ended.code == 2
    assert "30d" in ended.err


def test_machines_are_invited_for_a_day_and_once_unless_told_otherwise(swarm: Swarm, leader: ScriptedLeader):
    one, many = swarm("join-token", "create"), swarm("join-token", "create", "garage", "--uses", "3", "--expires=12h")

    assert one.out == many.out == "swarm-join-shown-once\n"
    assert "lets in one machine within 1d" in one.err
    assert "SWARM_JOIN_TOKEN=... swarm-fellow --leader HOST:PORT" in one.err
    assert [(asked.label, asked.uses, asked.expires_in_s) for asked in leader.made] == [
        ("", 1, 86_400),
        ("garage", 3, 43_200),
    ]


def test_join_tokens_are_listed_and_revoked(swarm: Swarm):
    listed, revoked = swarm("join-token", "list"), swarm("join-token", "revoke", "join-1")

    assert listed.out.splitlines()[1].split()[:2] == ["join-1", "garage"]
    assert listed.out.splitlines()[1].split()[-2:] == ["1", "2"]
    assert "machines that joined by it stay" in revoked.out


def test_a_token_of_the_environment_goes_before_a_file_and_that_before_the_leaders_own(
    swarm: Swarm, leader: ScriptedLeader, tmp_path: Path
):
    file = tmp_path / "key"
    file.write_text("sk-swarm-of-a-file\n")
    own = leader_folder(tmp_path, leader.address)

    swarm("tokens", "self", SWARM_API_KEY="sk-swarm-given", SWARM_API_KEY_FILE=str(file), SWARM_DATA_DIR=own)
    swarm("tokens", "self", SWARM_API_KEY_FILE=str(file), SWARM_DATA_DIR=own)
    swarm("tokens", "self", SWARM_DATA_DIR=own)
    swarm("tokens", "self", SWARM_DATA_DIR=str(tmp_path / "none"))

    assert leader.bearers == ["Bearer sk-swarm-given", "Bearer sk-swarm-of-a-file", "Bearer sk-swarm-of-the-leader", ""]


def test_the_leaders_own_token_goes_to_that_leader_alone(swarm: Swarm, leader: ScriptedLeader, tmp_path: Path):
    another = leader_folder(tmp_path, "127.0.0.1:1")

    swarm("tokens", "self", SWARM_DATA_DIR=another)

    assert leader.bearers == [""]


@pytest.mark.parametrize(("says", "is_plain"), [("", True), ("roots.pem\n", False)])
def test_the_roots_of_a_leader_here_are_trusted_when_it_says_it_leads_to_them(
    swarm: Swarm, leader: ScriptedLeader, tmp_path: Path, says: str, is_plain: bool
):
    """Roots that lie there from another day make no plaintext leader speak TLS."""
    own = leader_folder(tmp_path, leader.address)
    (tmp_path / "roots.pem").write_text("no roots")
    (tmp_path / "leader.address").write_text(f"{leader.address}\n{says}")

    ended = swarm("tokens", "self", SWARM_DATA_DIR=own)

    assert (ended.code == 0) is is_plain
    assert ("roots.pem" in ended.err) is not is_plain
    assert leader.bearers == (["Bearer sk-swarm-of-the-leader"] if is_plain else [])


def test_a_pin_without_its_prefix_is_shown_with_it(swarm: Swarm):
    ended = swarm("tokens", "self", SWARM_LEADER_CA="ab" * 32)

    assert (ended.code, "write sha256: before these 64 digits" in ended.err) == (2, True)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"SWARM_API_KEY": "two words"}, "SWARM_API_KEY holds no token"),
        ({"SWARM_API_KEY": "caf\u00e9"}, "SWARM_API_KEY holds no token"),
        ({"SWARM_API_KEY_FILE": "/nowhere/key"}, "SWARM_API_KEY_FILE: /nowhere/key cannot be read"),
    ],
)
def test_what_is_no_token_is_named_and_not_repeated(swarm: Swarm, variables: dict[str, str], words: str):
    ended = swarm("tokens", "self", **variables)

    assert ended.code == 2
    assert words in ended.err
    assert "Traceback" not in ended.err
    assert "two words" not in ended.err


def test_no_command_takes_a_token_as_an_option():
    """Options show in `ps` to everyone on the machine."""
    from swarm_cli.app import build_app
    from typer.main import get_command

    def options_of(command) -> set[str]:
        names = {name for option in command.params for name in option.opts if name.startswith("-")}
        return names.union(*(options_of(sub) for sub in getattr(command, "commands", {}).values()))

    named = options_of(get_command(build_app()))

    assert "--leader" in named
    counts = {"--max-tokens", "--min-tokens", "--new-tokens", "--prompt-tokens"}
    assert {name for name in named if "token" in name or "key" in name or "secret" in name} <= counts
