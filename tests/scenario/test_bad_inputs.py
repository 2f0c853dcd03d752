"""Bad inputs end with a message that names the path: exit code 2 for input, 1 for a run that fails."""

import bz2
import gzip
import json
import os
import shutil
import zipfile
from collections.abc import Callable
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rdpfl_sim import simulate
from rdpfl_sim.cli.main import main
from rdpfl_sim.records.schema import SCHEMA
from rdpfl_sim.simulation.checkpoint_file import packed, unpacked
from tests.runs import interrupt, left
from tests.support import small_scenario

SMALL = """
rounds = 3
clients = { count = 6 }
data = { name = "synthetic", shape = [8], num_train = 200, num_test = 40, num_classes = 3 }
partition = "iid"
model = "softmax"
output = { figures = false }
timing = { wait = { name = "deadline", seconds = 1.0 } }
"""
DIGITS, HEX, DEEP = "9" * 5000, "0x" + "f" * 5000, "[" * 5000 + "]" * 5000
HUGE = 9 * 10**18
MEBIBYTE = 1 << 20


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    """The working folder, with a scenario, a pipe and a huge sparse file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL)
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    return tmp_path


def assert_rejected(capsys: pytest.CaptureFixture[str], code: int, path: str, *words: object) -> str:
    """Call a command that must end with this code and a message that names the path; return the message."""
    capsys.readouterr()
    try:
        found = main([str(word) for word in words])
    except SystemExit as end:
        found = end.code
    message = " ".join(capsys.readouterr().err.split())
    assert found == code, message
    assert "Traceback" not in message
    assert path in message
    return message


@pytest.mark.parametrize(
    ("path", "override"),
    [
        ("rounds", f"rounds={DIGITS}"),
        ("rounds", f"rounds={HEX}"),
        ("model", f"model={{name='mlp',hidden=[{HEX}]}}"),
        ("x", f"x={DEEP}"),
        ("--set", ".".join("a" * 5000) + "=1"),
        ("faults", "faults[²]=1"),
        ("faults", f"faults[{DIGITS}]=1"),
        ("topology.path", 'topology={name="file",path="a\\u0000b.csv"}'),
        ("data.path", 'data={name="npz",path="\\u0000"}'),
        ("faults[0].path", 'faults=[{name="churn_trace",path="\\u0000"}]'),
        ("rounds", "rounds=3\nseed=9"),
        ("rounds", "rounds=3\n[network]"),
        ("method", "method={name='local'}\nseed=9"),
        ("output.folder", "output.folder=runs\nseed=9"),
        ("adversary.attack", "adversary={attack={},fraction=0.2}"),
        ("adversary.timing", "adversary={timing={},fraction=0.2}"),
        ("network.loss", "network.loss={}"),
        (
            "faults[0].topology.path",
            'faults=[{name="change_topology",at_s=1.0,topology={name="file",path="\\u0000.csv"}}]',
        ),
        ("topology.path", 'topology={name="file",path="~nosuchuser/a.csv"}'),
        ("topology.path", f'topology={{name="file",path="{"a" * 5000}.csv"}}'),
        ("data.path", 'data={name="npz",path="~nosuchuser/a"}'),
        ("data.shape", "data={name='synthetic',shape=[1000000,1000000,1000000]}"),
        ("data.shape", f"data={{name='synthetic',shape=[{HUGE},9,9]}}"),
        ("data.num_train", f"data={{name='synthetic',shape=[8],num_train={HUGE}}}"),
        ("data.num_classes", f"data={{name='synthetic',shape=[8],num_classes={HUGE}}}"),
        ("model.hidden", f"model={{name='mlp',hidden=[{HUGE}]}}"),
        ("model.hidden", "model={name='mlp',hidden=[1000000,1000000]}"),
        ("model.hidden", f"model={{name='mlp',hidden=[{'1,' * 5000}]}}"),
        ("training.batch_size", f"training.batch_size={HUGE}"),
        ("training.local_steps", f"training.local_steps={HUGE}"),
        ("execution.threads", f"execution.threads={HUGE}"),
        ("execution.executor.workers", f"execution.executor={{name='threads',workers={HUGE}}}"),
        ("clients.count", f"clients.count={HUGE}"),
        ("topology.path", 'topology={name="file",path="pipe",format="csv"}'),
        ("topology.path", 'topology={name="file",path="/dev/zero",format="csv"}'),
        ("topology.path", 'topology={name="file",path="sparse",format="csv"}'),
        ("faults[0].path", 'faults=[{name="churn_trace",path="pipe"}]'),
        ("faults[0].path", 'faults=[{name="churn_trace",path="/dev/zero"}]'),
        ("data.path", 'data={name="npz",path="pipe"}'),
        ("data.path", 'data={name="npz",path="/dev/zero"}'),
        ("data.path", 'data={name="npz",path="/dev/zero",subset=10}'),
    ],
)
def test_invalid_option_is_named(path: str, override: str, folder: Path, capsys) -> None:
    assert_rejected(capsys, 2, path, "validate", "small.toml", "--set", override)


@pytest.mark.parametrize("topology", ["k_regular", "small_world", "complete"])
def test_graph_with_too_many_links_is_not_built(topology: str, folder: Path, capsys) -> None:
    k = "" if topology == "complete" else ", k=99998"
    options = ["--set", f"topology={{name='{topology}'{k}}}", "--set", "clients.count=100000"]
    message = assert_rejected(capsys, 2, "topology", "validate", "small.toml", *options)
    assert "links; allowed: 10,000,000" in message


def test_models_of_all_clients_must_fit_into_memory(folder: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("rdpfl_sim.files.memory_bytes", lambda: MEBIBYTE)
    words = ["validate", "small.toml", "--set", "model={name='mlp',hidden=[10000]}"]
    assert "needs 0 GB of memory" in assert_rejected(capsys, 2, "model", *words)


@pytest.mark.parametrize("command", ["run", "validate", "breakdown"])
@pytest.mark.parametrize("file", ["pipe", "/dev/zero", "sparse", "."])
def test_scenario_that_is_not_a_regular_file_is_rejected(
    command: str, file: str, folder: Path, capsys
) -> None:
    vary = ["--vary", "method.lambda"] if command == "breakdown" else []
    assert_rejected(capsys, 2, file, command, file, *vary)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("x.toml", f"rounds = {DIGITS}"),
        ("rounds", f"rounds = {HEX}"),
        ("x.toml", f"x = {DEEP}"),
        ("x.toml", ".".join("a" * 3000) + " = 1"),
        ("pipe", 'base = "pipe"'),
        ("/dev/zero", 'base = "/dev/zero"'),
        ("\\x00", 'base = "\\u0000"'),
        ("pipe", 'base = "small.toml"\nprofiles = "pipe"'),
        ("grid.rounds[0]", f'base = "small.toml"\n[grid]\nrounds = [{HEX}]'),
        ("--set", f'base = "small.toml"\n[grid]\n"{".".join("a" * 5000)}" = [1]'),
        ("profiles.p.seeds", f'base = "small.toml"\n[profiles.p]\nseeds = {[*range(100_001)]}'),
        ("seeds: seed 1 is listed 2 times", 'base = "small.toml"\nseeds = [1, 2, 1]'),
        ("profiles.p.seeds: seed 0 is listed 2 times", 'base = "small.toml"\n[profiles.p]\nseeds = [0, 0]'),
        ("seeds: must have at least 1 entry", 'base = "small.toml"\nseeds = []'),
        ("grid.rounds: must have at least 1 entry", 'base = "small.toml"\n[grid]\nrounds = []'),
        ("axis[0].cases: must have at least 1 entry", 'base = "small.toml"\naxis=[{name="a",cases=[]}]'),
    ],
)
def test_invalid_file_is_named(path: str, text: str, folder: Path, capsys) -> None:
    (folder / "x.toml").write_text(text)
    assert_rejected(capsys, 2, path, "validate", "x.toml")


def test_number_of_seeds_is_limited(folder: Path, capsys) -> None:
    for seeds in ("999999999999", DIGITS):
        assert_rejected(
            capsys, 2, "--seeds", "breakdown", "small.toml", "--vary", "method.lambda", "--seeds", seeds
        )


def test_invalid_output_folder_is_named(folder: Path, capsys) -> None:
    assert_rejected(capsys, 2, "output.folder", "run", "small.toml", "--set", 'output.folder="a\\u0000"')


@pytest.mark.parametrize(("suffix", "compress"), [("gz", gzip.compress), ("bz2", bz2.compress)])
def test_size_of_a_decompressed_graph_is_limited(
    suffix: str, compress: Callable[[bytes], bytes], folder: Path, capsys, monkeypatch
) -> None:
    monkeypatch.setattr("rdpfl_sim.world.network.topology.MAX_INPUT_BYTES", MEBIBYTE)
    (folder / f"bomb.edgelist.{suffix}").write_bytes(compress(b"0" * 10 * MEBIBYTE))
    override = f"topology={{name='file',path='bomb.edgelist.{suffix}'}}"
    message = assert_rejected(capsys, 2, "topology.path", "validate", "small.toml", "--set", override)
    assert "is larger than 1 MiB" in message


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("huge.sparse6", b":~~" + b"~" * 6 + b"\n"),
        ("huge.graph6", b"~~" + b"~" * 6 + b"\n"),
        ("digits.edgelist", b"9" * 5000 + b" 1\n"),
        ("deep.gml", b"graph [" * 5000),
        ("cut.edgelist.gz", gzip.compress(b"0 1\n" * 1000, mtime=0)[:30]),
        ("plain.csv.gz", b"0,1\n"),
    ],
)
def test_invalid_graph_file_is_rejected(name: str, content: bytes, folder: Path, capsys) -> None:
    (folder / name).write_bytes(content)
    assert_rejected(
        capsys,
        2,
        "topology.path",
        "validate",
        "small.toml",
        "--set",
        f"topology={{name='file',path='{name}'}}",
    )


def npy(shape: str, data: bytes, kind: str = "'<f4'") -> bytes:
    """Return a file in the format of numpy that declares any shape and type."""
    header = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


@pytest.mark.parametrize(
    "x_train",
    [
        npy("(1000000000000, 4)", b""),
        npy("(-1, 4)", b""),
        npy("(2, 4)", b"cos\nsystem\n", "'|O'"),
        npy("(2, 4)", b"abc"),
        npy("(True, 5)", bytes(20)),
        npy("(" * 500, b""),
        npy(f"{'(' * 500}2{')' * 500}", b""),
        npy("(2, 4)", bytes(32), f"{'[' * 1500}{']' * 1500}"),
        npy("(2, 4)", bytes(32), f"{'(' * 150}'<f4'{', (1,))' * 150}"),
        b"\x93NUMPY\x01\x00\xff\xff",
    ],
)
def test_array_that_does_not_match_its_header_is_rejected(x_train: bytes, folder: Path, capsys) -> None:
    labels = npy("(2,)", np.array([0, 1]).tobytes(), "'<i8'")
    with zipfile.ZipFile(folder / "crafted.npz", "w") as archive:
        for key, content in (
            ("x_train", x_train),
            ("y_train", labels),
            ("x_test", labels),
            ("y_test", labels),
        ):
            archive.writestr(f"{key}.npy", content)
    message = assert_rejected(
        capsys, 2, "data.path", "validate", "small.toml", "--set", "data={name='npz',path='crafted.npz'}"
    )
    assert len(message) < 500


def test_arrays_that_do_not_fit_into_memory_are_not_decompressed(folder: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("rdpfl_sim.learning.datasets.dataset.memory_bytes", lambda: MEBIBYTE)
    zeros = {"x_train": np.zeros((1 << 20, 4)), "x_test": np.zeros((2, 4))}
    np.savez_compressed(folder / "bomb.npz", **zeros, y_train=np.zeros(1 << 20, int), y_test=np.zeros(2, int))
    message = assert_rejected(
        capsys, 2, "data.path", "validate", "small.toml", "--set", "data={name='npz',path='bomb.npz'}"
    )
    assert "more than this machine has" in message


@pytest.mark.parametrize(
    "fault",
    [
        "name='resample_topology',every_s=1e-6",
        "name='random_crashes',mean_time_to_fail_s=1e-6,mean_time_to_recover_s=1e-6",
        "name='random_outages',mean_time_to_fail_s=1e-6,mean_time_to_heal_s=1e-6",
    ],
)
def test_fault_every_microsecond_ends_the_run(fault: str, folder: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("rdpfl_sim.world.world.MAX_CHANGES_PER_TRAINING", 10)
    message = assert_rejected(
        capsys, 1, "faults[0]", "run", "small.toml", "--quiet", "--set", f"faults=[{{{fault}}}]"
    )
    assert "while clients finished local training 0 times; make the fault less frequent" in message


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was interrupted after a checkpoint."""
    return left(
        small_scenario(checkpoint={"every_rounds": 1}), tmp_path_factory.mktemp("left"), 13, interrupt
    )


def first_event(place: int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(state: dict[str, Any]) -> None:
        state["run"]["queue"][0][place] = value

    return change


def part(name: str, attribute: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(state: dict[str, Any]) -> None:
        state["run"]["parts"][name][attribute] = value

    return change


def top(group: str, **values: Any) -> Callable[[dict[str, Any]], None]:
    def change(state: dict[str, Any]) -> None:
        state[group].update(values)

    return change


def write_checkpoint(run: Path, content: bytes) -> None:
    """Replace the checkpoints of a run folder by one with this content and the matching name."""
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").mkdir()
    name = f"000001-{blake2b(content, digest_size=16).hexdigest()}.safetensors"
    (run / "checkpoints" / name).write_bytes(content)


@pytest.mark.parametrize(
    ("code", "change"),
    [
        (2, first_event(0, float("nan"))),
        (2, first_event(0, -1.0)),
        (2, first_event(0, "soon")),
        (2, first_event(1, 99)),
        (2, first_event(2, None)),
        (2, first_event(2, ["client", 99])),
        (2, first_event(2, ["call", "world", "apply"])),
        (2, first_event(2, ["part", "world"])),
        (2, first_event(2, ["value", 10**9])),
        (1, top("run", queue=[])),
        (2, top("run", queue=None)),
        (2, top("run", waiting=[-1])),
        (2, top("run", waiting=[99])),
        (2, top("run", values=[["os.system", "true"]])),
        (2, top("about", records="ab")),
        (2, top("about", environment=None)),
        (2, part("kernel", "_now", float("nan"))),
        (2, part("kernel", "_now", float("inf"))),
        (2, part("kernel", "_now", -5.0)),
        (2, part("world", "num_changes", 10**18)),
        (2, part("state 0", "round", -(10**18))),
        (2, part("state 0", "round", "first")),
        (1, part("simulation", "num_trained", "many")),
    ],
)
def test_crafted_checkpoint_is_rejected(
    code: int, change: Callable[[dict[str, Any]], None], interrupted: Path, tmp_path: Path, capsys
) -> None:
    run = Path(shutil.copytree(interrupted, tmp_path / "run"))
    newest = max((run / "checkpoints").glob("*.safetensors"))
    state, tensors = unpacked(bytearray(newest.read_bytes()), "cpu")
    change(state)
    write_checkpoint(run, b"".join(map(bytes, packed(state, tensors))))
    assert "checkpoint" in assert_rejected(capsys, code, str(run), "resume", run, "--quiet")


def checkpoint_with(text: bytes, **tensors: Any) -> bytes:
    """Return the content of a checkpoint with any text as its state."""
    entry = {"dtype": "U8", "shape": [len(text)], "data_offsets": [0, len(text)]}
    header = json.dumps({"state": entry, **tensors}).encode()
    return len(header).to_bytes(8, "little") + header + text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        b"\xff" * 8 + b"{}",
        checkpoint_with(b"[" * 100_000),
        checkpoint_with(b'{"a":' + b"9" * 5000 + b"}"),
        checkpoint_with(b"[]"),
        checkpoint_with(b"{}", **{"0": {"dtype": "F32", "shape": [2**40], "data_offsets": [2, 2]}}),
        checkpoint_with(b"{}", **{"0": {"dtype": "F32", "shape": [-1, -1], "data_offsets": [0, 4]}}),
    ],
)
def test_malformed_checkpoint_is_rejected(content: bytes, interrupted: Path, tmp_path: Path, capsys) -> None:
    run = Path(shutil.copytree(interrupted, tmp_path / "run"))
    write_checkpoint(run, content)
    assert_rejected(capsys, 2, str(run), "resume", run, "--quiet")


WRONG = (
    f'{{"schema":{SCHEMA},"accuracy":"x","status":[],"warnings":5,"sessions":3,'
    '"num_clients":"a","edges":5,"byzantine":7}'
)
NEEDED = {"show": ["summary.json", "provenance.json"], "report": ["summary.json", "topology.json"]}
NEEDED |= {"trace": ["topology.json"], "watch": ["summary.json"]}
PAIRS = [pair for command, names in NEEDED.items() for pair in product([command], names)]


@pytest.mark.parametrize("content", ["[]", "5", "", "[" * 100_000, WRONG])
@pytest.mark.parametrize(("command", "name"), PAIRS)
def test_damaged_file_of_a_run_is_reported(
    command: str, name: str, content: str, interrupted: Path, tmp_path: Path, capsys
) -> None:
    run = Path(shutil.copytree(interrupted, tmp_path / "run"))
    (run / name).write_text(content)
    assert "damaged" in assert_rejected(capsys, 1, str(run), command, run)


def test_line_without_end_is_reported(interrupted: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("rdpfl_sim.files.MAX_LINE_BYTES", MEBIBYTE)
    run = Path(shutil.copytree(interrupted, tmp_path / "run"))
    with (run / "events.jsonl").open("wb") as file:
        file.truncate(1 << 40)
    for command in ("trace", "verify"):
        assert "has a line of 1 MiB" in assert_rejected(capsys, 1, str(run / "events.jsonl"), command, run)


def test_inputs_within_the_limits_are_accepted(folder: Path) -> None:
    result = simulate(small_scenario(rounds=2, training={"batch_size": 1000}, execution={"threads": 2}))
    assert result.summary["status"] == "finished"
