"""What lies where in a fellow's state folder, as far as several parts of it must agree. Pure: touches no disk."""

TLS_FOLDER = "tls"  # what this machine's stages prove themselves with
LEADER_ROOTS = f"{TLS_FOLDER}/leader.pem"  # by which the leader was known before
