"""Runs in the place of a fellow under `swarm up`: it only lives."""

import signal

if __name__ == "__main__":
    signal.pause()
