"""Makes the benchmarks importable."""

import benchmarks_package  # noqa: F401
