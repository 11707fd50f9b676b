"""Start of `swarm`. The only module of the command that reads the process environment."""

import os
import sys

from swarm_cli.app import run


def main() -> None:
    """Run one command and exit with its code."""
    sys.exit(run(sys.argv[1:], os.environ))


if __name__ == "__main__":
    main()
