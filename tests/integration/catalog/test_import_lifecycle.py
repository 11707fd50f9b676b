"""Imports that are cancelled, killed, doubled, or run out of disk: nothing half-made is ever listed."""

import asyncio
import os
import signal
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest
from swarm_core.errors import BadRequest, Conflict, DiskFull, LoadFailed, Overloaded
from swarm_leader.catalog.assemble import check_space, copy_file
from swarm_leader.catalog.disk import DiskCatalog
from swarm_leader.catalog.importer import Importer
from swarm_leader.catalog.progress import Progress
from swarm_leader.catalog.steps import Step, run_step
from swarm_leader.catalog.workplace import clean_leftovers, open_workplace, publish

from tests.integration.catalog.checkpoints import llama_tensors, names_in, nobody_listens, write_checkpoint

REPOSITORY = Path(__file__).parents[3]


def converter(tmp_path: Path, body: str) -> list[str]:
    """A converter that speaks the protocol of swarm_stage.convert: SOURCE OUT_DIR."""
    script = tmp_path / "converter.py"
    script.write_text("import json, pathlib, shutil, sys, time\nsource, out = sys.argv[1:]\n" + textwrap.dedent(body))
    return [sys.executable, str(script)]


def gguf(tmp_path: Path) -> Path:
    """A file of that name."""
    path = tmp_path / "tiny.Q4_1.gguf"
    path.write_bytes(b"GGUF" + bytes(20))
    return path


async def test_a_gguf_file_is_converted_and_imported_as_a_folder(root: Path, tmp_path: Path):
    ready = write_checkpoint(tmp_path / "ready")
    command = converter(
        tmp_path,
        f"""
        shutil.copytree({str(ready)!r}, out, dirs_exist_ok=True)
        print("a library says hello")
        for done in (0, 1, 2):
            print(json.dumps({{"step": "convert", "done": done, "total": 2}}), flush=True)
        """,
    )
    steps: list[tuple[str, int, int]] = []
    importer = Importer(root, gguf_command=command)
    source = str(gguf(tmp_path))
    manifest = await importer.import_source(source, "", "", lambda *step: steps.append(step))

    assert (manifest.model_id, manifest.source) == ("tiny", source)
    assert set(manifest.tensors) == set(llama_tensors())
    assert ("convert", 2, 2) in steps and steps[-1][0] == "hash" and steps[-1][1] == steps[-1][2]
    assert names_in(root) == ["tiny"]
    again = await Importer(root, gguf_command=["/bin/false"]).import_source(source, "", "", nobody_listens)
    assert again == manifest


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        ("sys.exit(print('not a GGUF file', file=sys.stderr) or 2)", BadRequest, "^not a GGUF file$"),
        ("import no_such_library", BadRequest, r"needs no_such_library.*pip install 'silentswarm\[stage\]'"),
        ("sys.exit(print('x') or 7)", LoadFailed, "ended with code 7"),
        ("import os; os.kill(os.getpid(), 9)", LoadFailed, "signal 9; the machine may have too little memory"),
        ("raise OSError(28, 'No space left on device')", DiskFull, "ran out of disk"),
        ("print('x' * 100_000)", LoadFailed, "line of more than"),
        ("print(json.dumps({'step': 1, 'done': 'x', 'total': None}))", BadRequest, "no config.json|not a"),
    ],
)
async def test_a_converter_that_fails_is_told_in_its_words(root: Path, tmp_path: Path, body: str, error, words: str):
    importer = Importer(root, gguf_command=converter(tmp_path, body))

    with pytest.raises(error, match=words):
        await importer.import_source(str(gguf(tmp_path)), "m", "", nobody_listens)
    assert names_in(root) == []


@pytest.mark.parametrize("content", [b"", b"GGUF\0\0\0\0", b"PK\3\4" + bytes(100)])
async def test_a_file_that_does_not_begin_as_a_gguf_is_refused_before_a_converter_starts(
    root: Path, tmp_path: Path, content: bytes
):
    path = tmp_path / "tiny.gguf"
    path.write_bytes(content)
    importer = Importer(root, gguf_command=["/nowhere/converter"])

    with pytest.raises(BadRequest, match=r"tiny\.gguf is not a GGUF file"):
        await importer.import_source(str(path), "", "", nobody_listens)


async def test_a_child_that_says_nothing_is_ended(tmp_path: Path):
    step = Step("convert", [*converter(tmp_path, "time.sleep(60)"), "a", "b"], needs="stage")

    with pytest.raises(LoadFailed, match=r"said nothing for 0.2 s"):
        await run_step(step, lambda line: None, silence_s=0.2)


async def test_a_cancelled_import_ends_its_child_and_leaves_nothing(root: Path, tmp_path: Path):
    pid_file = tmp_path / "pid"
    body = f"""
        import os
        pathlib.Path({str(pid_file)!r}).write_text(str(os.getpid()))
        print(json.dumps({{"step": "convert", "done": 1, "total": 9}}), flush=True)
        time.sleep(60)
        """
    started = asyncio.Event()
    importer = Importer(root, gguf_command=converter(tmp_path, body))

    def on_progress(step: str, done: int, total: int) -> None:
        if done == 1:
            started.set()

    task = asyncio.create_task(importer.import_source(str(gguf(tmp_path)), "m", "", on_progress))
    await asyncio.wait_for(started.wait(), 20)
    with pytest.raises(Conflict, match="being imported already"):
        await importer.import_source(str(gguf(tmp_path)), "m", "", nobody_listens)
    task.cancel()
    await asyncio.wait({task}, timeout=20)

    assert task.cancelled()
    assert names_in(root) == []
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


async def test_an_import_cancelled_while_it_hashes_leaves_nothing(root: Path, tmp_path: Path):
    tensors = llama_tensors() | {"model.layers.0.big.weight": np.zeros(32 * 2**20, np.float32)}
    source = write_checkpoint(tmp_path / "source", tensors=tensors)
    hashing = asyncio.Event()

    def on_progress(step: str, done: int, total: int) -> None:
        if step == "hash":
            hashing.set()

    task = asyncio.create_task(Importer(root).import_source(str(source), "m", "", on_progress))
    await asyncio.wait_for(hashing.wait(), 20)
    task.cancel()
    await asyncio.wait({task}, timeout=20)
    (source / "model.safetensors").unlink()  # a hundred megabytes that pytest would keep

    assert task.cancelled()
    assert names_in(root) == []


async def test_more_imports_than_two_at_once_are_refused(root: Path, tmp_path: Path):
    importer = Importer(root, gguf_command=converter(tmp_path, "time.sleep(60)"))
    source = str(gguf(tmp_path))
    tasks = [asyncio.create_task(importer.import_source(source, name, "", nobody_listens)) for name in ("a", "b")]
    async with asyncio.timeout(20):
        while len(list(root.glob(".import-*"))) < 2:  # a source is looked at in a thread before its import counts
            await asyncio.sleep(0.01)

    with pytest.raises(Overloaded, match="2 imports are running"):
        await importer.import_source(source, "c", "", nobody_listens)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=20)


_IMPORTING = """
import asyncio, sys
from pathlib import Path
from swarm_leader.catalog.importer import Importer

def on_progress(step, done, total):
    print(step, flush=True)

source, root = sys.argv[1:3]
command = [sys.executable, "-c", "import time; time.sleep(60)"]
asyncio.run(Importer(Path(root), gguf_command=command).import_source(source, "m", "", on_progress))
"""


async def test_what_a_killed_import_left_is_never_listed_and_gone_at_the_next_start(root: Path, tmp_path: Path):
    script = tmp_path / "importing.py"
    script.write_text(_IMPORTING)
    leader = await asyncio.create_subprocess_exec(
        sys.executable,
        script,
        gguf(tmp_path),
        root,
        stdout=asyncio.subprocess.PIPE,
        cwd=REPOSITORY,
        start_new_session=True,
    )
    assert await asyncio.wait_for(leader.stdout.readline(), 20) == b"convert\n"
    assert clean_leftovers(root) == 0  # it is at work
    os.killpg(leader.pid, signal.SIGKILL)
    await leader.wait()
    catalog = DiskCatalog(root)
    catalog.refresh()
    assert (catalog.manifests(), catalog.broken()) == ({}, {})
    assert len(names_in(root)) == 1

    Importer(root)
    assert names_in(root) == []


async def test_a_model_set_aside_by_a_killed_replacement_comes_back(catalog: DiskCatalog, root: Path):
    leftover = root / ".import-killed"
    (leftover / "replaced").mkdir(parents=True)
    (root / "org---tiny").rename(leftover / "replaced/org---tiny")

    assert clean_leftovers(root) == 1
    catalog.refresh()
    assert list(catalog.manifests()) == ["org/tiny"]


def test_a_model_that_cannot_be_replaced_stays(catalog: DiskCatalog, root: Path):
    with open_workplace(root) as workplace, pytest.raises(OSError):
        publish(workplace, workplace / "missing", root / "org---tiny")

    catalog.refresh()
    assert list(catalog.manifests()) == ["org/tiny"]


def test_a_full_disk_is_told_with_the_numbers(tmp_path: Path):
    source = tmp_path / "weights"
    source.write_bytes(b"x" * 100_000)

    with pytest.raises(DiskFull, match="needs 100000 bytes and has") as refused:
        copy_file(source, Path("/dev/full"), lambda count: None, threading.Event())
    assert refused.value.facts["needed_bytes"] == "100000"


def test_a_copy_that_cannot_fit_is_refused_before_it_starts(tmp_path: Path):
    sparse = Path("/dev/shm") / f"swarm-sparse-{os.getpid()}"
    with sparse.open("wb") as file:
        file.truncate(2**46)
    try:
        with pytest.raises(DiskFull, match=f"needs {2**46} bytes"):
            check_space(tmp_path, [sparse])
    finally:
        sparse.unlink()


async def test_progress_is_told_seldom_and_nothing_is_kept_back_at_the_end():
    told: list[tuple[str, int, int]] = []
    progress = Progress(lambda *step: told.append(step), every_s=3600)
    for done in range(10):
        progress.report("hash", done, 10)
    await asyncio.sleep(0)
    assert told == [("hash", 9, 10)]
    progress.report("hash", 10, 10)
    progress.report("copy", 0, 10)
    await asyncio.sleep(0)
    assert told == [("hash", 9, 10)]

    progress.close()
    progress.report("copy", 10, 10)
    await asyncio.sleep(0)
    assert told == [("hash", 9, 10), ("hash", 10, 10), ("copy", 0, 10)]


async def test_a_report_that_nothing_follows_is_told_a_moment_later():
    told: asyncio.Queue[tuple[str, int, int]] = asyncio.Queue(9)
    progress = Progress(lambda *step: told.put_nowait(step), every_s=0.05)
    progress.report("convert", 0, 9)
    await asyncio.sleep(0)
    progress.report("convert", 1, 9)

    assert [await asyncio.wait_for(told.get(), 10) for _ in range(2)] == [("convert", 0, 9), ("convert", 1, 9)]
