"""The Python in the README and the documentation runs.

The blocks of one page are run in order, in one fresh interpreter, beside a running service called
`demo`, as a reader who tries the page would have it.
"""

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CACHEW = Path(sysconfig.get_path("scripts"), "cachew")


def python_blocks(page: Path) -> list[str]:
    """The fenced Python blocks of a page, in order."""
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


PAGES_WITH_PYTHON = [
    str(page.relative_to(ROOT))
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    if python_blocks(page)
]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Environment variables under which a service called `demo` is found."""
    home = tmp_path_factory.mktemp("docs")
    variables = {
        **os.environ,
        "CACHEW_HOME": str(home / "cachew"),
        "AIRFLOW_HOME": str(home / "airflow"),
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    variables.pop("CACHEW_SERVICE", None)
    command = [str(CACHEW), "up", "demo", "--workers", "2"]
    subprocess.run(command, env=variables, check=True, timeout=120)
    try:
        yield variables
    finally:
        subprocess.run([CACHEW, "down", "demo"], env=variables, check=True, timeout=60)


@pytest.mark.parametrize("page", PAGES_WITH_PYTHON)
def test_the_python_of_a_page_runs(page: str, environment: dict[str, str], tmp_path: Path) -> None:
    # A file, not `-c`: Kubeflow Pipelines reads the source of the functions that become components.
    script = tmp_path / "page.py"
    script.write_text("\n\n".join(python_blocks(ROOT / page)))
    result = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        check=False,
        text=True,
        timeout=240,
    )
    assert result.returncode == 0, result.stderr[-4000:]


def test_the_pages_that_show_code_are_found() -> None:
    assert {"README.md", "docs/getting-started.md"} <= set(PAGES_WITH_PYTHON)
