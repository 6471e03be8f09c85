"""A PostgreSQL server of the tests' own, on a socket in a temporary folder."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

START_DEADLINE_S = 60
USER = "cachew"


def missing() -> str:
    """What keeps a server from being started here; empty if nothing does."""
    absent = [name for name in ("initdb", "postgres") if find(name) is None]
    try:
        import psycopg  # noqa: F401
    except ImportError:
        absent.append("the Python package psycopg")
    return "" if not absent else f"PostgreSQL can't be tested, not found: {', '.join(absent)}"


def find(name: str) -> str | None:
    """Path of one of PostgreSQL's programs; Debian keeps them off the path."""
    debian = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(debian[-1]) if debian else None)


class PostgresqlServer:
    """Runs from entering to leaving; `stop` and `start` in between.

    Attributes:
        folder: of its data and its socket.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="cachew-pg-"))
        self._data = self.folder / "data"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            # PostgreSQL refuses to run as root.
            if self._account():
                shutil.chown(self.folder, **self._account())
            self._run(
                "initdb", "-D", self._data, "-U", USER, "-A", "trust", "--no-sync", "-E", "UTF8"
            )
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    def url(self, database: str = "postgres") -> str:
        """The `store_url` of one of its databases."""
        return f"postgresql+psycopg://{USER}@/{database}?host={self.folder}"

    def run_sql(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Runs one statement outside of any transaction, and returns its rows."""
        import psycopg

        where = f"host={self.folder} user={USER} dbname={database}"
        with psycopg.connect(where, autocommit=True, connect_timeout=5) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def start(self) -> None:
        """Returns when it answers."""
        import psycopg

        program = find("postgres")
        assert program is not None
        arguments = ["-D", str(self._data), "-k", str(self.folder)]
        with (self.folder / "log").open("ab") as log:
            self._process = process = subprocess.Popen[bytes](
                [program, *arguments, "-c", "listen_addresses=", "-c", "fsync=off"],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                **self._identity(),
            )
        deadline = time.monotonic() + START_DEADLINE_S
        while True:
            try:
                self.run_sql("SELECT 1")
                return
            except psycopg.OperationalError:
                ended = process.poll() is not None
                if ended or time.monotonic() > deadline:
                    raise RuntimeError((self.folder / "log").read_text()) from None
            time.sleep(0.05)

    def stop(self) -> None:
        """Ends it and all its connections."""
        if self._process is not None:
            # "Fast": connections are ended, not waited for.
            self._process.send_signal(signal.SIGINT)
            self._process.wait(60)
            self._process = None

    def _remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)

    def _run(self, name: str, *arguments: str | Path) -> None:
        program = find(name)
        assert program is not None
        result = subprocess.run(
            [program, *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=self.folder,
            **self._identity(),
        )
        assert result.returncode == 0, result.stderr

    def _account(self) -> dict[str, Any]:
        if os.geteuid() != 0:
            return {}
        names = {entry.pw_name: entry for entry in pwd.getpwall()}
        entry = names.get("postgres") or names["nobody"]
        return {"user": entry.pw_uid, "group": entry.pw_gid}

    def _identity(self) -> dict[str, Any]:
        account = self._account()
        return {**account, "extra_groups": []} if account else {}
