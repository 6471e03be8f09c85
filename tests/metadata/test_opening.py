"""A store opens, or says in one sentence that names the setting why it does not."""

import re
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from postgresql_server import PostgresqlServer

from cachew_core.errors import MetadataError
from cachew_core.metadata import MetadataStore, database
from cachew_core.metadata.address import file_system_type, is_network_file_system, parse_address


def refusal(url: str) -> str:
    """What `open` says when it refuses."""
    with pytest.raises(MetadataError) as caught:
        MetadataStore.open(url, store="photographs")
    return str(caught.value)


@pytest.mark.parametrize(
    "url", ["", "no url", "mysql://host/db", "sqlite://", "sqlite:///:memory:", "sqlite:///file:x"]
)
def test_what_is_no_address_of_a_store_is_refused_with_the_forms_that_are(url: str) -> None:
    assert re.search(r"store_url.*sqlite:////path/to/file.db", refusal(url))


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_postgresql_is_reached_by_one_driver_under_all_its_names(scheme: str) -> None:
    address = parse_address(f"{scheme}://me@host/db")
    assert address.url.drivername == "postgresql+psycopg"
    assert address.path is None


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_text("anything else\n" * 100)
    message = refusal(f"sqlite:///{tmp_path}/store.db")
    assert f"{tmp_path}/store.db" in message
    assert "store_url" in message
    assert (tmp_path / "store.db").read_text() == "anything else\n" * 100


def test_a_folder_that_can_not_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    message = refusal(f"sqlite:///{tmp_path}/file/store.db")
    assert f"store_url=sqlite:///{tmp_path}/file/store.db" in message


def test_a_server_that_does_not_answer_is_named_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.setattr(database, "_RETRY_S", 0.2)
    message = refusal(f"postgresql://me:s3cret@/db?host={tmp_path}")
    assert "store_url" in message
    assert "s3cret" not in message
    assert str(tmp_path) in message


def test_a_database_that_is_not_there_is_named(
    server: PostgresqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_RETRY_S", 0.2)
    message = refusal(server.url("nothing"))
    assert '"nothing" does not exist' in message


@dataclass(frozen=True)
class Mount:
    mountpoint: str
    fstype: str


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Mount]:
    """What the kernel says is mounted: to mount a network's file system takes a server of one."""
    table = [Mount("/", "ext4"), Mount(str(tmp_path / "shared"), "ext4")]
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: table)
    return table


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "fuse.glusterfs", "fuse.gcsfuse", "fuse", "cifs"])
def test_a_file_on_a_network_file_system_is_refused_in_favour_of_postgresql(
    tmp_path: Path, mounts: list[Mount], kind: str
) -> None:
    mounts.append(Mount(str(tmp_path / "shared"), kind))
    message = refusal(f"sqlite:///{tmp_path}/shared/deep/store.db")
    assert f"{tmp_path}/shared/deep/store.db" in message
    assert f"({kind})" in message
    assert "store_url" in message
    assert "PostgreSQL" in message
    assert not (tmp_path / "shared").exists()


def test_a_path_through_a_link_to_a_network_file_system_is_refused(
    tmp_path: Path, mounts: list[Mount]
) -> None:
    mounts.append(Mount(str(tmp_path / "shared"), "nfs4"))
    (tmp_path / "shared").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "shared")
    assert "(nfs4)" in refusal(f"sqlite:///{tmp_path}/link/store.db")


def test_a_local_mount_inside_of_a_network_file_system_is_local(
    tmp_path: Path, mounts: list[Mount]
) -> None:
    mounts.append(Mount(str(tmp_path / "shared"), "nfs4"))
    mounts.append(Mount(str(tmp_path / "shared" / "disk"), "xfs"))
    assert file_system_type(tmp_path / "shared" / "disk" / "store.db") == "xfs"
    assert file_system_type(tmp_path / "shared" / "disks" / "store.db") == "nfs4"
    MetadataStore.open(f"sqlite:///{tmp_path}/shared/disk/store.db", store="photographs").close()


@pytest.mark.parametrize(
    "kind", ["ext4", "xfs", "overlay", "tmpfs", "fuseblk", "fuse.fuse-overlayfs"]
)
def test_file_systems_of_one_machine_are_allowed(kind: str) -> None:
    assert not is_network_file_system(kind)


def test_every_connection_to_a_file_has_the_log_the_keys_and_the_patience(sqlite_url: str) -> None:
    opened = database.Database(parse_address(sqlite_url))

    def pragma(connection: Any, name: str) -> Any:
        return connection.exec_driver_sql(f"PRAGMA {name}").scalar()

    try:
        for _ in range(2):
            assert opened.read(lambda each: pragma(each, "journal_mode")) == "wal"
            assert opened.read(lambda each: pragma(each, "foreign_keys")) == 1
            assert opened.read(lambda each: pragma(each, "busy_timeout")) == 5000
    finally:
        opened.close()


def test_a_row_of_a_pipeline_that_is_not_known_is_refused_by_the_database(
    sqlite_url: str, tmp_path: Path
) -> None:
    MetadataStore.open(sqlite_url, store="photographs").close()
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute(
                "INSERT INTO cachew_worker_counts "
                "(store_id, fingerprint, mode, workers, measured_at) "
                "VALUES (1, 'unknown', 'GET', 1, '2026-05-04 12:00:00')"
            )
