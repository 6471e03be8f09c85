"""A trainer is a member of its job while its dataset lives, whatever becomes of the dispatcher."""

import gc
import logging
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import grpc
import pytest
import tensorflow as tf
from lasting_ports import lasting_port
from real_service import eventually
from scripted_dispatcher import ScriptedDispatcher, client_threads

import cachew_core as cachew


@pytest.fixture
def dispatcher() -> Iterator[ScriptedDispatcher]:
    with ScriptedDispatcher() as scripted:
        yield scripted
        gc.collect()  # datasets are in reference cycles
        eventually(lambda: not client_threads())


def distributed(dispatcher: ScriptedDispatcher) -> tf.data.Dataset:
    return tf.data.Dataset.range(10).apply(
        cachew.distribute(dispatcher.endpoint, metrics_interval_s=0.05)
    )


def test_the_stream_begins_with_who_is_there(dispatcher: ScriptedDispatcher) -> None:
    dataset = distributed(dispatcher)
    eventually(lambda: bool(dispatcher.streams and dispatcher.streams[0].messages))
    hello = dispatcher.streams[0].messages[0].hello
    assert (hello.client_id, hello.job_id) == (dispatcher.registered[0].client_id, "job-1")
    del dataset


def test_a_dataset_that_is_no_longer_referenced_says_bye_and_leaves_no_thread(
    dispatcher: ScriptedDispatcher,
) -> None:
    dataset = distributed(dispatcher)
    eventually(lambda: len(dispatcher.streams) == 1)
    assert len(client_threads()) == 1
    del dataset
    gc.collect()
    eventually(lambda: dispatcher.streams[0].said_bye)
    eventually(lambda: not client_threads())
    assert len(dispatcher.streams) == 1


def test_what_was_derived_from_it_keeps_the_membership(dispatcher: ScriptedDispatcher) -> None:
    derived = distributed(dispatcher).map(lambda i: i).prefetch(1)
    eventually(lambda: len(dispatcher.streams) == 1)
    gc.collect()
    assert len(client_threads()) == 1
    assert not dispatcher.streams[0].said_bye
    del derived


def test_an_iterator_keeps_the_membership(dispatcher: ScriptedDispatcher) -> None:
    iterator = iter(distributed(dispatcher))
    eventually(lambda: len(dispatcher.streams) == 1)
    gc.collect()
    assert len(client_threads()) == 1
    assert not dispatcher.streams[0].said_bye
    del iterator


def test_an_exiting_trainer_says_bye(dispatcher: ScriptedDispatcher) -> None:
    script = f"""
        import tensorflow as tf
        import cachew_core as cachew

        dataset = tf.data.Dataset.range(3).apply(cachew.distribute("{dispatcher.endpoint}"))
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=120)
    (stream,) = dispatcher.streams
    assert stream.said_bye


def test_an_exiting_trainer_does_not_wait_long_for_a_dispatcher_that_is_gone() -> None:
    dispatcher = ScriptedDispatcher()
    script = f"""
        import sys
        import tensorflow as tf
        import cachew_core as cachew

        dataset = tf.data.Dataset.range(3).apply(cachew.distribute("{dispatcher.endpoint}"))
        print("ready", flush=True)
        sys.stdin.read()
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as trainer:
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == "ready\n"
        dispatcher.stop()
        trainer.communicate(timeout=60)
        assert trainer.returncode == 0


def test_a_stream_that_breaks_is_opened_again(dispatcher: ScriptedDispatcher) -> None:
    dataset = distributed(dispatcher)
    eventually(lambda: len(dispatcher.streams) == 1)
    dispatcher.streams[0].close.set()
    eventually(lambda: len(dispatcher.streams) == 2 and bool(dispatcher.streams[1].messages))
    assert dispatcher.streams[1].messages[0].hello == dispatcher.streams[0].messages[0].hello
    del dataset


def test_a_dispatcher_that_was_restarted_on_its_port_is_found_again() -> None:
    first = ScriptedDispatcher(port=lasting_port())
    dataset = distributed(first)
    eventually(lambda: len(first.streams) == 1)
    first.stop()
    with ScriptedDispatcher(port=first.port) as second:
        eventually(lambda: bool(second.streams and second.streams[0].messages))
        assert second.streams[0].messages[0].hello.client_id == first.registered[0].client_id
        del dataset
        gc.collect()
        eventually(lambda: not client_threads())


def test_a_dispatcher_that_forgot_the_trainer_is_not_asked_again(
    dispatcher: ScriptedDispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "cachew")
    dispatcher.stream_refusal = (grpc.StatusCode.NOT_FOUND, "the service does not know this client")
    dataset = distributed(dispatcher)
    eventually(lambda: "does not know this client" in caplog.text)
    eventually(lambda: not client_threads())
    assert len(dispatcher.streams) == 1
    del dataset
