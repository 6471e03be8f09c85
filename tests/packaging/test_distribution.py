"""The distribution holds every package under its import name, and installs in both ways."""

import json
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "cachew_core": "cachew_core",
    "cachew_components": "components",
    "cachew_operators": "operators",
    "cachew_pipelines": "pipelines",
    "cachew_manifests": "manifests",
}
UV = Path(sysconfig.get_path("scripts"), "uv")

PROBE = """
import importlib.metadata as metadata
import importlib.resources as resources
import json
import cachew_core, cachew_components, cachew_operators, cachew_pipelines, cachew_manifests

distribution = metadata.distribution("cachew-service")
print(json.dumps({
    "version": distribution.version,
    "same_version": cachew_core.__version__ == distribution.version,
    "entry_points": {point.name: point.value for point in distribution.entry_points},
    "image": (resources.files("cachew_manifests") / "image" / "Dockerfile").is_file(),
    "typed": (resources.files("cachew_core") / "py.typed").is_file(),
    "from": cachew_components.__file__,
}))
"""


def uv(*arguments: str | Path) -> None:
    """Runs uv, with its output in the error when it fails."""
    result = subprocess.run([UV, *arguments], capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stderr


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the distribution is built from: building in the checkout would litter it."""
    copy = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    for folder in PACKAGES.values():
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The built wheel, opened."""
    folder = tmp_path_factory.mktemp("wheel")
    uv("build", "--wheel", "--quiet", "--out-dir", folder, source)
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def installed_files(source: Path, pattern: str) -> set[str]:
    """The source's files that match, under the names that they must have once installed."""
    return {
        str(Path(package, path.relative_to(source / folder)))
        for package, folder in PACKAGES.items()
        for path in (source / folder).rglob(pattern)
    }


def test_the_wheel_holds_every_module_under_its_import_name(
    source: Path, wheel: zipfile.ZipFile
) -> None:
    in_wheel = {name for name in wheel.namelist() if name.endswith(".py")}
    assert in_wheel == installed_files(source, "*.py")


@pytest.mark.parametrize("pattern", ["py.typed", "*.proto", "*.pyi", "*.yaml", "Dockerfile"])
def test_the_wheel_holds_the_data_files(source: Path, wheel: zipfile.ZipFile, pattern: str) -> None:
    assert installed_files(source, pattern) <= set(wheel.namelist())


def test_the_base_install_asks_for_none_of_the_heavy_libraries(wheel: zipfile.ZipFile) -> None:
    (metadata,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    required = [
        line
        for line in wheel.read(metadata).decode().splitlines()
        if line.startswith("Requires-Dist:") and "extra ==" not in line
    ]
    assert required
    for heavy in ("tensorflow", "kfp", "airflow", "kubernetes"):
        assert not [line for line in required if heavy in line]


@pytest.mark.parametrize("editable", [False, True], ids=["pip install .", "pip install -e ."])
def test_an_install_gives_all_packages_with_their_data(
    source: Path, tmp_path: Path, editable: bool
) -> None:
    environment = tmp_path / "environment"
    python = environment / "bin" / "python"
    uv("venv", "--quiet", "--python", sys.executable, environment)
    how = ["--editable"] if editable else []
    # Without dependencies: so it shows, too, that the packages import without them.
    uv("pip", "install", "--quiet", "--no-deps", "--python", python, *how, source)

    output = subprocess.run(
        [python, "-I", "-c", PROBE],
        cwd=tmp_path,
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    ).stdout
    found = json.loads(output)

    assert found["same_version"]
    assert found["image"]
    assert found["typed"]
    assert found["entry_points"]["cachew"] == "cachew_core.cli:main"
    assert found["entry_points"]["provider_info"] == "cachew_operators.provider:get_provider_info"
    assert Path(found["from"]).is_relative_to(source if editable else environment)
    assert (environment / "bin" / "cachew").exists()
