from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from cachew_core import cli, cluster
from cachew_core.errors import SettingsError
from cachew_core.settings import AgentSettings, DispatcherSettings
from cachew_core.version import __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    code: int
    output: str
    errors: str


@pytest.fixture
def cachew(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fake: tuple[str, ...]
) -> Callable[..., Outcome]:
    """Runs the command `cachew` in this process, with a service without TensorFlow."""
    monkeypatch.setattr(cluster, "up", partial(cluster.up, command=fake))
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["cachew", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        captured = capsys.readouterr()
        code = end.value.code
        assert code is None or isinstance(code, int)
        return Outcome(code=code or 0, output=captured.out, errors=captured.err)

    return run


Cachew = Callable[..., Outcome]


def test_a_service_is_started_shown_listed_and_ended(home: Path, cachew: Cachew) -> None:
    up = cachew("up", "one", "--workers", "3")
    assert up.code == 0
    endpoint = up.output.strip()
    assert re.fullmatch(r"grpc://127\.0\.0\.1:\d+", endpoint)
    assert "without TLS" in up.errors

    assert json.loads(cachew("list", "--json").output) == [
        {"name": "one", "endpoint": endpoint, "state": "running"}
    ]
    assert endpoint in cachew("list").output
    document = json.loads(cachew("status", "one", "--json").output)
    assert (document["endpoint"], document["state"]) == (endpoint, "running")
    assert len(document["workers"]) == 3
    assert document == json.loads(cachew("status", endpoint, "--json").output)
    assert "agent/2" in cachew("status", "one").output

    assert cachew("up", "one").output.strip() == endpoint
    refused = cachew("up", "one", "--workers", "1")
    assert refused.code == 1
    assert refused.errors.startswith("error: service 'one' runs already")
    assert refused.errors.count("\n") == 1

    assert cachew("down", "one") == Outcome(code=0, output="", errors="")
    assert cachew("down", "one").code == 0
    assert json.loads(cachew("list", "--json").output) == []
    assert "no services" in cachew("list").output


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_watching_shows_the_status_until_the_service_ends(
    home: Path, cachew: Cachew, monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    cachew("up", "one", "--workers", "1")
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 2:
            cluster.down("one")

    with monkeypatch.context() as patched:
        patched.setattr(cli, "_pause", sleep)
        outcome = cachew("status", "one", "--watch", *flags)
    assert outcome.code == 1
    assert outcome.errors == (
        "error: there is no service 'one' on this machine "
        f"(CACHEW_HOME={home}): start it with cachew up one\n"
    )
    assert "agent/0" in outcome.output
    if flags:
        assert [json.loads(line)["name"] for line in outcome.output.splitlines()] == ["one", "one"]


def test_ctrl_c_ends_a_watch_in_peace(
    home: Path, cachew: Cachew, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    cachew("up", "one", "--workers", "1")
    monkeypatch.setattr(cli, "_pause", interrupt)
    for flags in ([], ["--json"]):
        outcome = cachew("status", "one", "--watch", *flags)
        assert (outcome.code, outcome.errors) == (0, "")
    cluster.down("one")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["up", "bad name"], 2, "error: service name 'bad name'"),
        (["up", "one", "--workers", "0"], 2, "error: workers=0"),
        (["up", "one", "--port", "99999"], 2, "error: setting port=99999"),
        (["up"], 2, "Missing argument 'NAME'"),
        (["up", "one", "--workers", "many"], 2, "'--workers'"),
        (["status", "one"], 1, "error: there is no service 'one' on this machine"),
        (["status", "grpc://nowhere"], 2, "error: endpoint 'grpc://nowhere'"),
        (["status", "grpc://127.0.0.1:1"], 1, "error: no dispatcher answers at grpc://127.0.0.1:1"),
        (["dispatcher", "--idle-timeout", "0"], 2, "error: setting idle_timeout_s=0"),
        (["worker", "--slots", "0"], 2, "error: setting slots=0"),
    ],
)
def test_what_can_not_be_done_is_one_sentence_and_an_exit_code(
    home: Path, cachew: Cachew, arguments: list[str], code: int, text: str
) -> None:
    outcome = cachew(*arguments)
    assert outcome.code == code
    assert text in outcome.errors
    assert outcome.output == ""
    assert "Traceback" not in outcome.errors


def test_an_unknown_log_level_is_refused(
    home: Path, cachew: Cachew, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CACHEW_LOG_LEVEL", "LOUD")
    outcome = cachew("list")
    assert outcome.code == 2
    assert "CACHEW_LOG_LEVEL" in outcome.errors


def test_the_version_is_printed(cachew: Cachew) -> None:
    assert cachew("--version").output == f"cachew {__version__}\n"


@pytest.mark.parametrize(
    ("command", "settings"), [("dispatcher", DispatcherSettings), ("worker", AgentSettings)]
)
def test_every_setting_has_a_flag_with_its_meaning(
    cachew: Cachew, command: str, settings: type[DispatcherSettings] | type[AgentSettings]
) -> None:
    shown = re.sub(r"[\s│]+", " ", cachew(command, "--help").output)
    for name, field in settings.model_fields.items():
        assert f"--{name.removesuffix('_s').removesuffix('_bytes').replace('_', '-')} " in shown
        assert field.description is not None, name
        meaning = re.sub(r"\s+", " ", field.description.replace("`", "")).strip()
        assert meaning in shown


def test_flags_reach_the_settings(cachew: Cachew, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CACHEW_HOST", "from-environment")
    monkeypatch.setenv("CACHEW_PORT", "1")
    seen: list[DispatcherSettings] = []

    def load(**given: object) -> DispatcherSettings:
        seen.append(DispatcherSettings.load(**given))
        raise SettingsError("seen")

    monkeypatch.setattr(cli, "DispatcherSettings", type("Fake", (), {"load": staticmethod(load)}))
    cachew("dispatcher", "--port", "7", "--idle-timeout", "1.5", "--work-dir", "/some/where")
    (settings,) = seen
    assert (settings.host, settings.port) == ("from-environment", 7)
    assert (settings.idle_timeout_s, settings.work_dir) == (1.5, Path("/some/where"))
