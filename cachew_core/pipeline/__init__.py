"""Everything that reads or rewrites the graphs of pipelines; needs TensorFlow."""

from __future__ import annotations

from cachew_core.pipeline.checks import Limits
from cachew_core.pipeline.operators import operator_table
from cachew_core.pipeline.preparation import Prepared, prepare
from cachew_core.pipeline.seeds import seeded_operators
from cachew_core.pipeline.variants import worker_variant

__all__ = [
    "Limits",
    "Prepared",
    "operator_table",
    "prepare",
    "seeded_operators",
    "worker_variant",
]
