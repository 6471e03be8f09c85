"""The container image's build agrees with the distribution that it installs."""

import importlib.resources as resources
import re
import tomllib
from pathlib import Path

import pytest

from cachew_core import __version__

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture
def build() -> str:
    """The image's build file, as it is installed."""
    return (resources.files("cachew_manifests") / "image" / "Dockerfile").read_text()


@pytest.fixture
def final_stage(build: str) -> str:
    """What the image consists of, without the stage that only builds the wheel."""
    return build[build.rindex("\nFROM ") :]


def test_the_image_runs_the_command_that_the_distribution_installs(final_stage: str) -> None:
    (entry_point,) = re.findall(r'^ENTRYPOINT \["([^"]+)"\]$', final_stage, re.MULTILINE)
    assert entry_point in PYPROJECT["project"]["scripts"]


def test_every_version_in_the_image_is_the_distribution_s(build: str) -> None:
    versions = re.findall(r"(?:cachew-service:|version=\"|cachew_service-)(\d[\w.]*\d)", build)
    assert len(versions) == 3
    assert set(versions) == {__version__}


def test_the_image_installs_extras_that_exist(final_stage: str) -> None:
    (extras,) = re.findall(r"cachew-service\[([^\]]+)\]", final_stage)
    assert set(extras.split(",")) <= PYPROJECT["project"]["optional-dependencies"].keys()


def test_the_image_copies_only_what_is_there(build: str) -> None:
    sources = [
        name
        for line in re.findall(r"^COPY (?!--from)(.+)$", build, re.MULTILINE)
        for name in line.split()[:-1]
    ]
    assert sources
    assert [name for name in sources if not (ROOT / name).exists()] == []


def test_the_image_does_not_run_as_root(final_stage: str) -> None:
    (user,) = re.findall(r"^USER (\d+):\d+$", final_stage, re.MULTILINE)
    assert int(user) >= 1000
