"""What TensorFlow's own writer leaves is read for what it is, however the writing ended."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cachew_core.cache.snapshot import NotCompleteError, Run, read_window


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run for each way to end; the writer was killed in the last one."""
    root = tmp_path_factory.mktemp("stock")
    writer = subprocess.run(
        [sys.executable, Path(__file__).with_name("stock_writer.py"), root],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
        check=False,
    )
    assert writer.returncode == -signal.SIGKILL, writer.stdout.decode()
    return root


def read(root: Path, name: str) -> Run:
    return read_window(root / name, root)


@pytest.mark.parametrize(
    ("name", "elements", "shards"), [("saved", 7, 1), ("drained", 100, 3), ("empty", 0, 0)]
)
def test_a_drained_run_has_all_its_elements(
    stock: Path, name: str, elements: int, shards: int
) -> None:
    run = read(stock, name)
    assert run.elements == elements
    assert len(run.chunks) == shards
    assert all(chunk.stamp and chunk.stamp.size_bytes == chunk.bytes for chunk in run.chunks)
    for chunk in run.chunks:
        assert (stock / chunk.path).stat().st_size == chunk.bytes


@pytest.mark.parametrize("name", ["left", "failed", "begun", "full", "killed"])
def test_a_run_that_did_not_get_to_its_end_is_not_complete(stock: Path, name: str) -> None:
    with pytest.raises(NotCompleteError, match="was not written to its end"):
        read(stock, name)


def test_a_run_whose_end_was_not_asked_for_is_not_complete_although_all_is_there(
    stock: Path,
) -> None:
    with pytest.raises(NotCompleteError, match="was not written to its end"):
        read(stock, "all-taken")


def test_a_run_of_several_passes_is_not_one_pass(stock: Path) -> None:
    assert len([path for path in (stock / "repeated").iterdir() if path.is_dir()]) > 1
    with pytest.raises(NotCompleteError):
        read(stock, "repeated")


def test_a_run_folder_is_there_as_soon_as_there_is_an_iterator(stock: Path) -> None:
    assert (stock / "begun" / "snapshot.metadata").is_file()
