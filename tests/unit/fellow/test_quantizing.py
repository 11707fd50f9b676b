"""How a fellow finds out by which methods its stages hold weights."""

import subprocess
import sys

import pytest
from swarm_core.quantization import INT8, NF4
from swarm_fellow.domain.capabilities import Offer, declare_capabilities
from swarm_fellow.domain.quantizing import methods_installed, runs_int4_fast
from swarm_fellow.host.installed import is_installed, processor_flags
from swarm_fellow.rpc.convert import capabilities_to_proto, known_capabilities

AVX2 = frozenset({"fma", "avx", "avx2"})


def declared(**asked: object):
    offer = Offer(1, 8, True, 2**20, ("llama",), 256, **asked)  # type: ignore[arg-type]
    return capabilities_to_proto(declare_capabilities(offer, (), known_capabilities()))


@pytest.mark.parametrize(
    ("has_torchao", "cards", "flags", "runs"),
    [
        (True, ("8.0", "9.0"), (), True),
        (True, ("8.6", "7.5"), AVX2, False),  # one card that cannot decides
        (True, ("10.0",), (), True),
        (True, ("",), AVX2, False),  # what a card does not say is not taken for enough
        (True, (), AVX2, True),
        (True, (), {"avx"}, False),
        (False, ("9.0",), AVX2, False),
    ],
)
def test_int4_fast_is_declared_only_where_its_kernels_run(has_torchao, cards, flags, runs):
    assert runs_int4_fast(has_torchao, cards, flags) is runs
    assert declared(int4_fast=runs).HasField("serve_int4_fast") is runs


@pytest.mark.parametrize("has_bitsandbytes", [True, False])
def test_quantised_weights_are_declared_with_the_methods_installed(has_bitsandbytes):
    capabilities = declared(quantizations=methods_installed(has_bitsandbytes))

    assert capabilities.HasField("serve_quantized") is has_bitsandbytes
    assert list(capabilities.serve_quantized.methods) == ([NF4, INT8] if has_bitsandbytes else [])


def test_an_absent_distribution_is_not_installed():
    assert is_installed("bitsandbytes")
    assert not is_installed("a-distribution-that-nobody-has")


@pytest.mark.parametrize(
    ("text", "flags"), [("flags\t\t: fpu avx2 fma\nflags : x\n", {"fpu", "avx2", "fma"}), ("", set())]
)
def test_what_a_processor_can_do_is_what_its_kernel_says(text, flags, tmp_path):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(text)

    assert processor_flags(cpuinfo) == flags
    assert processor_flags(tmp_path / "absent") == frozenset()


def test_finding_out_imports_neither_torch_nor_the_libraries():
    script = (
        "import sys; from swarm_fellow.host.installed import is_installed; "
        "assert is_installed('torchao') and is_installed('bitsandbytes'); "
        "print(sorted({'torch', 'torchao', 'bitsandbytes'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.strip() == "[]"
