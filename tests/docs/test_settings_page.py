"""The settings page says what the code says."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_settings_page_is_up_to_date() -> None:
    result = subprocess.run(
        [sys.executable, ROOT / "tools" / "render_settings.py", "--check"], timeout=60, check=False
    )
    assert result.returncode == 0, "run tools/render_settings.py"
