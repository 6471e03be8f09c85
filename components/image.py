"""The container image that the components run in, named in one place.

The image is built from `manifests/image/Dockerfile` and holds Cachew, TensorFlow and kfp, so a
step installs nothing when it starts. Its name is read when a pipeline is compiled: whoever pushes
the image to a registry of their own sets `CACHEW_IMAGE` before compiling.
"""

from __future__ import annotations

import os

from cachew_core.version import __version__

IMAGE = os.environ.get("CACHEW_IMAGE") or f"cachew-service:{__version__}"
