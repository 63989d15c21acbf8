"""Rows divided among devices and processes: the same gradient to rounding, the same members."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from isr.training.devices import rows_mesh
from training import divided

PROGRAM = Path(__file__).parent / "divided.py"


def begin(*arguments, n_devices=1):
    flags = f"--xla_force_host_platform_device_count={n_devices} --xla_cpu_multi_thread_eigen=false"
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip


def output(process):
    try:
        out, err = process.communicate(timeout=400)
    finally:
        process.kill()
    assert process.returncode == 0, err[-3000:]
    return out


@pytest.mark.slow
def test_four_devices_give_the_gradient_and_the_members_of_one():
    assert output(begin("devices", n_devices=4)).split() == "gradient True True training True".split()


@pytest.mark.slow
def test_two_processes_give_the_members_of_one():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    processes = [begin("process", address, number) for number in range(2)]
    try:
        found = [np.array(json.loads(output(process).partition("weights")[2])) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert np.array_equal(*found)
    assert_allclose(found[0], divided.train(None).weights, rtol=1e-3, atol=1e-4)


def test_devices_that_are_not_there_and_rows_that_do_not_divide_are_explained():
    with pytest.raises(
        ValueError, match=r"n_devices=99, but JAX has \d+; .*device_count=99 before JAX starts"
    ):
        rows_mesh(99, 64)
    with pytest.raises(
        ValueError, match=r"a batch of 33 rows cannot be divided evenly among 1|n_devices=2, but"
    ):
        rows_mesh(2, 33)
    assert rows_mesh(None, 33) is None
