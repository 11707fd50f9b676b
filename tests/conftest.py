"""What every test runs under, whichever and however many beside it. No fixtures: those live beside their tests."""

import os
import signal

from hypothesis import HealthCheck, settings

# Tests run in three processes on two cores, many of them before processes of their own: a second thread for matrices
# this small only waits for its turn. Before torch is imported, here and in what the tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A spare stage process costs 4 s of CPU that a test did not ask for; those that are about one set it.
os.environ.setdefault("SWARM_STAGE_SPARE", "off")
# Nor do fellows hold stages that a test did not ask for.
os.environ.setdefault("SWARM_COVERS", "off")

# Nor does a fellow measure its machine beside what a test is about.
os.environ.setdefault("SWARM_FELLOW_BENCHMARK", "off")

# How long an example takes says how busy the machine is, nothing about the code.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

# What runs in the background of a shell ignores Ctrl-C, and so would every process that tests start to interrupt it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
