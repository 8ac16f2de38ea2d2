"""Workers: a failure is shown, without secrets, and overcome."""

from __future__ import annotations

import threading

import structlog

from tidemark.compute.worker import Worker
from tidemark.errors import Unavailable


def failing(error: Exception) -> tuple[Worker, list[dict]]:
    """A worker that has failed twice and then recovered, and what it has logged."""
    recovered = threading.Event()

    def body(worker: Worker) -> None:
        if worker.failures < 2:
            raise error
        recovered.set()
        worker.stopping.wait()

    with structlog.testing.capture_logs() as logged:
        worker = Worker("w", body, secrets=("hunter2", ""))
        assert recovered.wait(120)
        worker.stop()
    return worker, logged


def test_secrets_are_not_in_what_is_said_of_an_error() -> None:
    worker, logged = failing(ValueError("no such password: hunter2\nmore of hunter2"))
    assert worker.status().error == "ValueError: no such password: ***"
    assert len(logged) == 2
    assert "hunter2" not in repr(logged)
    assert "more of ***" in repr(logged)


def test_a_reason_that_stays_the_same_is_logged_once() -> None:
    worker, logged = failing(Unavailable("away", hint="wait"))
    assert worker.status().error == "Unavailable: away (wait)"
    assert worker.status().failures == 2
    assert [entry["error"] for entry in logged] == ["Unavailable: away (wait)"]
    worker.healthy()
    assert worker.status().error is None
