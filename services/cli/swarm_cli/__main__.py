"""Start of `swarm`. The only module of the command that reads the process environment."""

import os
import sys


def main() -> None:
    """Run one command and exit with its code."""
    # gRPC's own notes about connections that end are for its developers; it reads this when it is imported.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    from swarm_cli.app import run

    sys.exit(run(sys.argv[1:], os.environ))


if __name__ == "__main__":
    main()
