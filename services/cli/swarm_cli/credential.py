"""What a command presents and trusts: from the environment, or the folder of a leader on this machine. A token is never
an option of a command: options show in `ps`."""

from pathlib import Path

from swarm_core.errors import BadRequest, SwarmError
from swarm_core.listen import is_loopback, split_host_port

from swarm_cli.config import CliConfig

LENGTH_MAX = 512
ADMIN_FILE = "admin-token"
ADDRESS_FILE = "leader.address"
ROOTS_FILE = "roots.pem"
# Where `swarm-leader` and `swarm up` keep their state when nobody says otherwise.
FOLDERS = (Path("~/.silent-swarm/leader"), Path("~/.silent-swarm/up/leader"))


def find_token(config: CliConfig, address: str) -> str:
    """The token for the leader at HOST:PORT; "" for none. Raises BadRequest for what is no token."""
    if given := given_token(config):
        return given
    for folder in _folders(config):
        if _served_at(folder, address) and (secret := _read(folder / ADMIN_FILE)):
            return secret
    return ""


def find_leader_ca(config: CliConfig, address: str) -> str:
    """SWARM_LEADER_CA for the leader at HOST:PORT, or the roots that a leader of this machine says it leads to."""
    if config.leader_ca:
        return config.leader_ca
    for folder in _folders(config):
        if ROOTS_FILE in _served_at(folder, address)[1:]:
            return str(folder / ROOTS_FILE)
    return ""


def given_token(config: CliConfig) -> str:
    """The token that the environment gives; "" for none. Raises BadRequest for what is no token."""
    if config.api_key:
        return _checked(config.api_key.strip(), "SWARM_API_KEY")
    if config.api_key_file:
        return _checked(_read(Path(config.api_key_file).expanduser(), must=True), "SWARM_API_KEY_FILE")
    return ""


def metadata_of(token: str) -> tuple[tuple[str, str], ...]:
    """What goes with a call."""
    return (("authorization", f"Bearer {token}"),) if token else ()


def _folders(config: CliConfig) -> tuple[Path, ...]:
    return tuple(folder.expanduser() for folder in ((Path(config.data_dir),) if config.data_dir else FOLDERS))


def _served_at(folder: Path, address: str) -> list[str]:
    """What the leader of this folder says of itself, when it is the one that is called: nobody else gets its token."""
    host, port = split_host_port(address)
    told = _read(folder / ADDRESS_FILE).split()
    try:
        return told if told and is_loopback(host) and split_host_port(told[0])[1] == port else []
    except SwarmError:
        return []


def _read(file: Path, must: bool = False) -> str:
    """The one line of a file; "" when it cannot be read. Raises BadRequest when it must be."""
    try:
        with file.open() as stream:
            return stream.read(LENGTH_MAX).strip()
    except (OSError, UnicodeDecodeError) as error:
        if must:
            why = getattr(error, "strerror", None) or "it holds no text"
            raise BadRequest(f"SWARM_API_KEY_FILE: {file} cannot be read: {why}", field="SWARM_API_KEY_FILE") from None
        return ""


def _checked(secret: str, variable: str) -> str:
    """A secret that fits into a header. Raises BadRequest that does not repeat it."""
    if not secret or not secret.isascii() or not secret.isprintable() or " " in secret:
        raise BadRequest(f"{variable} holds no token: a token is one word of letters, digits and signs", field=variable)
    return secret
