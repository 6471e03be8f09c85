"""The documentation builds, and its links lead somewhere."""

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from cachew_core import __version__

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("components/*/README.md")]
TOP_LEVEL_PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    mkdocs = Path(sysconfig.get_path("scripts"), "mkdocs")
    result = subprocess.run(
        [mkdocs, "build", "--strict", "--quiet", "--site-dir", tmp_path],
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert (tmp_path / "index.html").exists()


@pytest.mark.parametrize("page", TOP_LEVEL_PAGES)
def test_links_to_files_lead_to_files(page: str) -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text())
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_pages_name_the_image_of_this_version() -> None:
    versions = {
        version
        for page in PAGES
        for version in re.findall(r"cachew-service:(\d[\w.]*\w)", page.read_text())
    }
    assert versions <= {__version__}
