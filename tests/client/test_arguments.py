"""Arguments that can't be used are refused where they are written, before any network."""

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import cachew_core as cachew
from cachew_core.errors import PipelineError, ServiceUnavailableError, SettingsError

policy = tf.data.experimental.service.ShardingPolicy


@pytest.fixture(autouse=True)
def no_service_around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CACHEW_HOME", str(tmp_path))
    monkeypatch.delenv("CACHEW_SERVICE", raising=False)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"job_name": ""}, "job_name=''"),
        ({"job_name": "   "}, "job_name="),
        ({"job_name": "a\nb"}, "printable"),
        ({"job_name": "a" * 129}, "1 to 128"),
        ({"job_name": 7}, "job_name=7"),
        ({"job_name": b"bytes"}, "job_name=b'bytes'"),
        ({"processing_mode": "both_epochs"}, "processing_mode='both_epochs'"),
        ({"processing_mode": None}, "processing_mode=None"),
        ({"processing_mode": policy.FILE}, "static sharding"),
        ({"processing_mode": policy.DATA}, "static sharding"),
        ({"processing_mode": policy.FILE_OR_DATA}, "static sharding"),
        ({"processing_mode": policy.HINT}, "static sharding"),
        ({"compression": "GZIP"}, "compression='GZIP'"),
        ({"compression": ""}, "compression=''"),
        ({"compression": ["AUTO"]}, "compression="),
        ({"target_workers": "LOCAL"}, "processes of their own"),
        ({"target_workers": "SOME"}, "target_workers='SOME'"),
        ({"max_outstanding_requests": 0}, "max_outstanding_requests=0"),
        ({"prefetch": -1}, "prefetch=-1"),
        ({"prefetch": 1.5}, "prefetch=1.5"),
        ({"prefetch": True}, "prefetch=True"),
        ({"consumer_index": 0}, "go together"),
        ({"num_consumers": 2}, "go together"),
        ({"num_consumers": 0, "consumer_index": 0, "job_name": "j"}, "num_consumers=0"),
        ({"num_consumers": 2, "consumer_index": 2, "job_name": "j"}, "from 0 to 1"),
        ({"num_consumers": 2, "consumer_index": -1, "job_name": "j"}, "consumer_index=-1"),
        ({"num_consumers": 2, "consumer_index": 0}, "needs a job_name"),
        ({"cross_trainer_cache": "trainer-1"}, "CrossTrainerCache"),
        ({"max_workers": 0}, "max_workers=0"),
        ({"weight": 0}, "weight=0"),
        ({"weight": -1.5}, "weight=-1.5"),
        ({"weight": float("nan")}, "weight=nan"),
        ({"priority": 1.5}, "priority=1.5"),
        ({"priority": 1001}, "priority=1001"),
        ({"tenant": 7}, "tenant=7"),
    ],
)
def test_an_argument_that_cannot_be_used_is_named_with_its_value(
    given: dict[str, Any], words: str
) -> None:
    with pytest.raises(PipelineError, match=words.replace("[", r"\[")):
        cachew.distribute(**given)


@pytest.mark.parametrize(
    ("service", "error"),
    [
        ("", SettingsError),
        (" ", SettingsError),
        ("grpc://nowhere", SettingsError),
        ("grpc://host:0", SettingsError),
        ("grpc://host:99999", SettingsError),
        ("http://host:80/path", SettingsError),
        ("a name with spaces", SettingsError),
        ("../escape", SettingsError),
        ("not-started", ServiceUnavailableError),
    ],
)
def test_a_service_that_cannot_be_meant_is_refused(service: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        cachew.distribute(service)


def test_an_empty_service_variable_is_refused_like_an_empty_argument(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CACHEW_SERVICE", "")
    with pytest.raises(SettingsError, match="CACHEW_SERVICE"):
        cachew.distribute()


@pytest.mark.parametrize(
    "given", [{"connect_deadline_s": 0}, {"workers_deadline_s": -1}, {"metrics_interval_s": "soon"}]
)
def test_a_setting_that_cannot_be_used_is_named(given: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=next(iter(given))):
        cachew.distribute(**given)


@pytest.mark.parametrize(
    "given",
    [
        {"processing_mode": policy.OFF},
        {"processing_mode": policy.DYNAMIC},
        {"processing_mode": "parallel_epochs"},
        {"compression": "AUTO"},
        {"compression": "SNAPPY"},
        {"target_workers": "ANY"},
        {"prefetch": 0},
        {"job_name": "über job nr. 1"},
        {"job_name": "j" * 128},
    ],
)
def test_an_argument_that_can_be_used_is_taken(given: dict[str, Any]) -> None:
    assert callable(cachew.distribute(**given))


def test_a_coordinated_read_of_data_that_ends_is_refused_before_the_service_is_asked() -> None:
    transformation = cachew.distribute(
        "grpc://127.0.0.1:1", job_name="j", num_consumers=2, consumer_index=0
    )
    with pytest.raises(PipelineError, match=r"of 10 elements.*\.repeat\(\)"):
        tf.data.Dataset.range(10).apply(transformation)


def test_distribute_inside_a_function_is_refused() -> None:
    transformation = cachew.distribute()

    @tf.function
    def traced() -> tf.Tensor:
        return next(iter(tf.data.Dataset.range(3).apply(transformation)))

    with pytest.raises(Exception, match=r"inside a tf\.function"):
        traced()


@pytest.mark.parametrize("name", ["", "1st", "with space", "a/b", "a" * 64, None, 3, "end"])
def test_a_mark_needs_a_name_that_can_stand_in_a_graph(name: Any) -> None:
    with pytest.raises(PipelineError, match="mark name"):
        cachew.mark(name)


@pytest.mark.parametrize("given", [None, 1, "yes"])
def test_whether_a_mark_allows_random_elements_is_true_or_false(given: Any) -> None:
    with pytest.raises(PipelineError, match="allow_random="):
        cachew.mark("decoded", allow_random=given)


@pytest.mark.parametrize("microseconds", [-1, 0.5, "10", True, None, 24 * 3600 * 1_000_000 + 1])
def test_a_sleep_needs_whole_microseconds(microseconds: Any) -> None:
    with pytest.raises(PipelineError, match="microseconds"):
        cachew.sleep(microseconds)
