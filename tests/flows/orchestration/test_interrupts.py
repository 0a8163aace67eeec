"""Promises of ``tfgrpo.flows.orchestration.interrupts``."""

import os
import signal
import subprocess
import sys
import threading

from tfgrpo.flows.orchestration.interrupts import termination_interrupts


def test_in_another_thread_it_does_nothing():
    seen = []

    def work():
        with termination_interrupts():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]


WRITES_TO_NOBODY = """
import sys
from pathlib import Path
from prefect.logging.configuration import setup_logging
from prefect.logging.loggers import get_logger
from tfgrpo.flows.orchestration.interrupts import outlive_worker, worker_lost
setup_logging()
outlive_worker()
sys.stdin.readline()
get_logger("engine").error("a line into the broken pipe")
assert worker_lost.wait(60)
print("another", flush=True)
Path(sys.argv[1]).write_text("alive")
"""


def test_a_log_line_to_a_worker_that_was_killed_does_not_end_the_process(tmp_path):
    env = {**os.environ, "PREFECT_HOME": str(tmp_path), "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore"}
    command = [sys.executable, "-c", WRITES_TO_NOBODY, tmp_path / "end"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        process.stdout.close()
        process.stderr.close()
        process.stdin.write(b"\n")
        process.stdin.close()
        assert process.wait(60) == 0
    assert (tmp_path / "end").read_text() == "alive"
