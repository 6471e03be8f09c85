"""The identity of source files changes when, and only when, one of them does."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cachew_core.sources import SourceIdentity, identify


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "inner").mkdir(parents=True)
    for name in ("a.rec", "b.rec", "inner/c.rec", "d[1].rec", ".hidden"):
        (folder / name).write_text(f"content of {name}", encoding="utf-8")
    return folder


def whole(*patterns: object) -> SourceIdentity:
    found = identify(str(pattern) for pattern in patterns)
    assert found.problem == ""
    assert len(found.digest) == 64
    assert set(found.digest) <= set("0123456789abcdef")
    return found


def test_the_order_in_which_files_are_named_does_not_count(data: Path) -> None:
    one, other = data / "a.rec", data / "b.rec"
    assert whole(one, other) == whole(other, one, one) == whole(f"file://{one}", other)
    assert whole(data / "[ab].rec") == whole(one, other)


def test_a_folder_stands_for_all_files_below_it(data: Path) -> None:
    found = whole(data)
    files = [path for path in data.rglob("*") if path.is_file()]
    assert found.files == len(files) == 5
    assert found.bytes == sum(path.stat().st_size for path in files)
    assert found != whole(data / "*.rec")
    assert whole(f"{data}/*").files == 5


def test_a_name_with_the_characters_of_a_glob_is_taken_as_it_is(data: Path) -> None:
    assert whole(data / "d[1].rec").files == 1


def longer(path: Path) -> None:
    path.write_text("more than there was before, by far", encoding="utf-8")


def touched(path: Path) -> None:
    os.utime(path, ns=(1, 1))


def replaced(path: Path) -> None:
    status = path.stat()
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
    copy.replace(path)


def removed(path: Path) -> None:
    path.unlink()


def renamed(path: Path) -> None:
    path.rename(path.with_name("other.rec"))


def joined(path: Path) -> None:
    path.with_name("new.rec").touch()


@pytest.mark.parametrize("change", [longer, touched, replaced, removed, renamed, joined])
def test_each_change_of_a_file_gives_another_identity(
    data: Path, change: Callable[[Path], None]
) -> None:
    before = whole(data)
    assert whole(data) == before
    change(data / "inner" / "c.rec")
    assert whole(data).digest != before.digest


def test_links_count_as_what_they_lead_to(data: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "e.rec").write_text("e", encoding="utf-8")
    (data / "link").symlink_to(elsewhere)
    (data / "inner" / "back").symlink_to(data)
    before = whole(data)
    assert before.files == 6
    longer(elsewhere / "e.rec")
    assert whole(data).digest != before.digest


def test_no_files_at_all_have_an_identity() -> None:
    assert whole().files == 0


def dangling(data: Path) -> str:
    (data / "gone").symlink_to("/nowhere/at/all")
    return str(data)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (lambda data: data / "missing.rec", "missing.rec' is not there"),
        (lambda data: data / "*.none", "is not there"),
        (dangling, "can't be looked at .*gone"),
        (lambda data: "s3://bucket/a.rec", "'s3://bucket/a.rec' is not a mounted file.*trust_sour"),
        (lambda data: "relative/a.rec", "'relative/a.rec' is a relative path"),
        (lambda data: "/with\0nothing", "can't be looked at|is not there"),
    ],
)
def test_what_can_not_be_seen_is_a_problem(
    data: Path, pattern: Callable[[Path], object], words: str
) -> None:
    found = identify([str(data / "a.rec"), str(pattern(data))])
    assert found.digest == ""
    assert re.search(words, found.problem)
