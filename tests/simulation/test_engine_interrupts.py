import os
import signal
import threading
import time

import pytest

from regionfed_flwr.simulation.engine.interrupts import Interrupted, Interrupts


@pytest.fixture(autouse=True)
def with_a_terminal():
    """Tests may themselves run under nohup, where SIGHUP is ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_wait_and_nothing_else(number):
    before = signal.getsignal(number)
    with Interrupts() as interrupts:
        os.kill(os.getpid(), number)
        time.sleep(0.01)  # work goes on
        with pytest.raises(Interrupted) as caught:
            interrupts.sleep(60)
    assert caught.value.number == number
    assert signal.getsignal(number) is before


def test_the_first_signal_counts():
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(Interrupted, match="SIGTERM"):
            interrupts.check()


def test_a_run_under_nohup_ignores_the_end_of_its_terminal():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
            interrupts.check()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_another_thread_changes_no_handlers():
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def use() -> None:
        with Interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert seen == [before]
