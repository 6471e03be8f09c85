"""A store's tables come up to date when it opens, from whichever revision, or stay as they are."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

import cachew_core.metadata
from cachew_core.errors import MetadataError
from cachew_core.metadata import MetadataStore
from cachew_core.metadata.address import parse_address
from cachew_core.metadata.database import Database
from cachew_core.metadata.migrating import migrate
from cachew_core.metadata.schema import metadata

SCRIPTS = ScriptDirectory(str(Path(cachew_core.metadata.__file__).with_name("migrations")))
REVISIONS = sorted(each.revision for each in SCRIPTS.walk_revisions())


@pytest.fixture
def opened(url: str) -> Iterator[Database]:
    database = Database(parse_address(url))
    yield database
    database.close()


def differences(database: Database) -> list[Any]:
    """Between the tables that are there and those that the code knows."""

    def work(connection: Any) -> list[Any]:
        options = {"version_table": "cachew_revision", "compare_type": True}
        found = compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
        return [each for each in found if not is_by_type_of_text(each)]

    return database.read(work)


def is_by_type_of_text(difference: Any) -> bool:
    """Whether it is only that a column of text has a type of ours with the same text in it."""
    (first, *_) = difference if isinstance(difference, list) else [difference]
    return first[0] == "modify_type" and str(first[5]) == str(first[6].impl)


def test_there_are_revisions() -> None:
    assert len(REVISIONS) >= 2


def test_an_empty_database_gets_the_tables_that_the_code_knows(url: str, opened: Database) -> None:
    MetadataStore.open(url, store="photographs").close()
    assert differences(opened) == []


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_store_of_each_revision_comes_up_to_date_and_keeps_its_rows(
    url: str, opened: Database, revision: str
) -> None:
    opened.write(lambda connection: migrate(connection, revision=revision))
    now = datetime.now(UTC)

    def fill(connection: Any) -> None:
        connection.execute(
            text("INSERT INTO cachew_stores (name, created_at) VALUES ('photographs', :at)"),
            {"at": now.replace(tzinfo=None).isoformat(sep=" ")},
        )
        connection.execute(
            text(
                "INSERT INTO cachew_pipelines "
                "(store_id, fingerprint, first_seen, last_seen, description) "
                "SELECT id, 'f1', created_at, created_at, 'old' FROM cachew_stores"
            )
        )

    opened.write(fill)
    with MetadataStore.open(url, store="photographs") as store:
        (pipeline,) = store.pipelines()
        assert (pipeline.fingerprint, pipeline.description) == ("f1", "old")
        store.see_pipeline("f1", description="new")
        assert store.pipelines()[0].description == "new"
    assert differences(opened) == []


def test_a_newer_versions_tables_are_refused_and_left_alone(url: str, opened: Database) -> None:
    MetadataStore.open(url, store="photographs").close()
    newer = text("UPDATE cachew_revision SET version_num = '9999'")
    opened.write(lambda connection: connection.execute(newer))
    with pytest.raises(MetadataError, match=r"newer Cachew.*revision 9999.*store_url"):
        MetadataStore.open(url, store="photographs")
    current = text("SELECT version_num FROM cachew_revision")
    assert opened.read(lambda connection: connection.execute(current).scalar()) == "9999"


def test_a_migration_that_fails_half_way_leaves_nothing_behind(url: str, opened: Database) -> None:
    # The last table that the first revision makes.
    in_the_way = text("CREATE TABLE cachew_events (at TEXT)")
    opened.write(lambda connection: connection.execute(in_the_way))
    with pytest.raises(MetadataError, match=r"cachew_events.*already exists"):
        MetadataStore.open(url, store="photographs")
    tables = opened.read(lambda connection: inspect(connection).get_table_names())
    assert tables == ["cachew_events"]


def test_services_that_open_a_new_store_at_the_same_time_make_its_tables_once(url: str) -> None:
    def open_one(number: int) -> None:
        name = f"store{number % 2}"
        with MetadataStore.open(url, store=name, exclusive=False) as store:
            store.see_pipeline(f"f{number}")

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(open_one, range(6)))
    with MetadataStore.open(url, store="store1") as store:
        assert {each.fingerprint for each in store.pipelines()} == {"f1", "f3", "f5"}


def test_threads_that_open_different_databases_do_not_mix_them_up(tmp_path: Path) -> None:
    def open_one(number: int) -> None:
        with MetadataStore.open(f"sqlite:///{tmp_path}/{number}.db", store="photographs") as store:
            store.see_pipeline(f"f{number}")

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(open_one, range(16)))
    for number in range(16):
        database = Database(parse_address(f"sqlite:///{tmp_path}/{number}.db"))
        assert differences(database) == []
        database.close()


def test_tables_are_not_changed_under_a_service_that_uses_them(
    sqlite_url: str,
) -> None:
    with MetadataStore.open(sqlite_url, store="photographs"):
        database = Database(parse_address(sqlite_url))
        old = text(f"UPDATE cachew_revision SET version_num = '{REVISIONS[0]}'")
        database.write(lambda connection: connection.execute(old))
        with pytest.raises(MetadataError, match="in use by another service"):
            MetadataStore.open(sqlite_url, store="songs", exclusive=False)
        current = text("SELECT version_num FROM cachew_revision")
        assert database.read(lambda each: each.execute(current).scalar()) == REVISIONS[0]
        database.close()


def test_opening_from_another_working_directory_finds_the_revisions(tmp_path: Path) -> None:
    program = (
        "from cachew_core.metadata import MetadataStore\n"
        "MetadataStore.open('sqlite:///store.db', store='photographs').close()"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=60)
    assert (tmp_path / "store.db").is_file()
