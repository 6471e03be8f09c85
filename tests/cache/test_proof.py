"""A secret on the volume shows who sees it."""

from pathlib import Path

import pytest

from cachew_core.cache import Proof, lay_proof, read_proof
from cachew_core.cache.proof import NAME
from cachew_core.errors import CacheError


def test_whoever_sees_the_volume_reads_the_secret_back(tmp_path: Path) -> None:
    proof = lay_proof(tmp_path)
    assert read_proof(proof.path, proof.sha256) == proof.secret
    assert proof.secret not in (proof.path, proof.sha256)


def test_the_secret_of_an_earlier_owner_proves_nothing(tmp_path: Path) -> None:
    former, latter = lay_proof(tmp_path), lay_proof(tmp_path)
    assert read_proof(former.path, former.sha256) == ""
    assert read_proof(latter.path, latter.sha256) == latter.secret


@pytest.mark.parametrize("there", ["nothing", "another file", "a folder"])
def test_what_lies_there_instead_proves_nothing(tmp_path: Path, there: str) -> None:
    proof = lay_proof(tmp_path)
    (tmp_path / NAME).unlink()
    if there == "another file":
        (tmp_path / NAME).write_bytes(b"\xff" * 100)
    elif there == "a folder":
        (tmp_path / NAME).mkdir()
    assert read_proof(proof.path, proof.sha256) == ""


def test_a_file_of_another_name_is_not_told_to_a_service_that_asks(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.write_text("mine")
    asked = Proof(path=str(private), secret="mine")
    assert read_proof(asked.path, asked.sha256) == ""


def test_a_volume_that_can_not_be_written_is_an_error_that_names_the_setting(
    tmp_path: Path,
) -> None:
    with pytest.raises(CacheError, match=r"cache_dir .* can't be written"):
        lay_proof(tmp_path / "missing")
