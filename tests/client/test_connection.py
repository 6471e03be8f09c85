"""The hand-shake with a dispatcher, and every way in which it can fail."""

import gc
import logging
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
import tensorflow as tf
from lasting_ports import lasting_port
from real_service import eventually
from scripted_dispatcher import ScriptedDispatcher, client_threads

import cachew_core as cachew
from cachew_core.errors import (
    PipelineError,
    ServiceError,
    ServiceUnavailableError,
    VersionMismatchError,
)
from cachew_core.proto import cachew_pb2


@pytest.fixture
def dispatcher() -> Iterator[ScriptedDispatcher]:
    with ScriptedDispatcher() as scripted:
        yield scripted
        gc.collect()  # datasets are in reference cycles
        eventually(lambda: not client_threads())


def pipeline() -> tf.data.Dataset:
    return tf.data.Dataset.range(10).map(lambda i: i + 1)


def test_nothing_that_listens_is_reported_after_the_deadline_with_the_address() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(
        ServiceUnavailableError, match=f"dispatcher not reachable at {address} within 0.5 s"
    ):
        pipeline().apply(cachew.distribute(f"grpc://{address}", connect_deadline_s=0.5))


def test_a_listener_that_never_answers_is_reported_after_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ServiceUnavailableError, match="dispatcher not reachable"):
            pipeline().apply(cachew.distribute(f"grpc://{address}", connect_deadline_s=0.5))


def test_a_dispatcher_that_starts_within_the_deadline_is_found() -> None:
    port = lasting_port()
    started: list[ScriptedDispatcher] = []
    starter = threading.Timer(1, lambda: started.append(ScriptedDispatcher(port=port)))
    starter.start()
    dataset = pipeline().apply(cachew.distribute(f"grpc://127.0.0.1:{port}", connect_deadline_s=60))
    starter.join()
    assert len(started[0].registered) == 1
    del dataset
    gc.collect()
    eventually(lambda: not client_threads())
    started[0].stop()


def test_another_service_on_that_port_is_named_as_such() -> None:
    other = grpc.server(ThreadPoolExecutor(1))
    port = other.add_insecure_port("127.0.0.1:0")
    other.start()
    try:
        with pytest.raises(ServiceError, match="not a Cachew dispatcher"):
            pipeline().apply(cachew.distribute(f"grpc://127.0.0.1:{port}"))
    finally:
        other.stop(None).wait()


def test_another_version_of_the_api_is_one_sentence_before_anything_is_registered(
    dispatcher: ScriptedDispatcher,
) -> None:
    dispatcher.info.versions.api += 1
    with pytest.raises(VersionMismatchError, match="install the same cachew-service on both"):
        pipeline().apply(cachew.distribute(dispatcher.endpoint))
    assert dispatcher.registered == []


def test_a_tensorflow_that_is_too_far_away_is_one_sentence(dispatcher: ScriptedDispatcher) -> None:
    dispatcher.info.versions.tensorflow = "2.8.0"
    with pytest.raises(VersionMismatchError, match=r"TensorFlow 2\.8\.0.*2\.19 to 2\.21"):
        pipeline().apply(cachew.distribute(dispatcher.endpoint))


def test_a_graph_that_the_service_would_refuse_is_not_sent(dispatcher: ScriptedDispatcher) -> None:
    dispatcher.info.max_graph_bytes = 10
    with pytest.raises(PipelineError, match="takes 10"):
        pipeline().apply(cachew.distribute(dispatcher.endpoint))
    assert dispatcher.registered == []


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, PipelineError),
        (grpc.StatusCode.FAILED_PRECONDITION, ServiceError),
        (grpc.StatusCode.UNAVAILABLE, ServiceUnavailableError),
    ],
)
def test_a_refusal_of_the_service_reaches_the_user_in_its_own_words(
    dispatcher: ScriptedDispatcher, code: grpc.StatusCode, kind: type[Exception]
) -> None:
    dispatcher.refusal = (code, "job_name='x' is in use by another pipeline")
    with pytest.raises(kind, match=r"^job_name='x' is in use by another pipeline$"):
        pipeline().apply(cachew.distribute(dispatcher.endpoint, "x"))


def test_a_service_without_workers_is_reported_after_the_deadline(
    dispatcher: ScriptedDispatcher,
) -> None:
    dispatcher.info.workers = 0
    with pytest.raises(ServiceUnavailableError, match=r"0 workers registered at .* after 0\.5 s"):
        pipeline().apply(cachew.distribute(dispatcher.endpoint, workers_deadline_s=0.5))


def test_a_first_worker_that_comes_within_the_deadline_is_waited_for(
    dispatcher: ScriptedDispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    dispatcher.info.workers = 0

    def come() -> None:
        eventually(lambda: dispatcher.greeted > 3)
        dispatcher.info.workers = 1

    worker = threading.Thread(target=come)
    worker.start()
    pipeline().apply(cachew.distribute(dispatcher.endpoint))
    worker.join()
    assert sum("has no worker yet" in line for line in caplog.messages) == 1


def test_the_registration_says_what_the_service_needs_to_know(
    dispatcher: ScriptedDispatcher,
) -> None:
    pipeline().apply(
        cachew.distribute(
            dispatcher.endpoint, "job", "parallel_epochs", "SNAPPY", workers_deadline_s=7
        )
    )
    (request,) = dispatcher.registered
    assert request.job_name == "job"
    assert request.processing_mode == cachew_pb2.PARALLEL_EPOCHS
    assert request.compression == cachew_pb2.COMPRESSION_SNAPPY
    assert request.cardinality == 10
    assert request.workers_deadline_s == 7
    assert len(request.fingerprint) == 64
    assert len(request.client_id) == 32
    assert not request.HasField("num_consumers")


def test_notices_are_logged_once_at_their_level(
    dispatcher: ScriptedDispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "cachew")
    dispatcher.response.notices.append("seeds were removed")
    level = cachew_pb2.ClientNotice.Level
    dispatcher.notices = [
        cachew_pb2.ClientNotice(level=level.WARNING, text="seeds were removed"),
        cachew_pb2.ClientNotice(level=level.INFO, text="epoch 1 is queued"),
        cachew_pb2.ClientNotice(level=level.INFO, text="epoch 1 is queued"),
        cachew_pb2.ClientNotice(level=level.INFO, text="the last one"),
    ]
    dataset = pipeline().apply(cachew.distribute(dispatcher.endpoint))
    eventually(lambda: "the last one" in caplog.messages)
    lines = [(r.levelname, r.message) for r in caplog.records if r.name.startswith("cachew")]
    assert lines == [
        ("WARNING", "seeds were removed"),
        ("INFO", "epoch 1 is queued"),
        ("INFO", "the last one"),
    ]
    del dataset
