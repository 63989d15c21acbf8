"""A process that runs functions one after another, and is ended and replaced when one takes too long or dies."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any


class Ended(RuntimeError):
    """A call gave no result in time, or its process died."""


class Worker:
    """Runs functions of modules in a process of its own, with limits on time.

    The process starts with the first call and stays for later ones, so that imports and compiled programs do; a call
    that fails by an exception of its own raises ``RuntimeError`` here, with type and message.

    Args:
        prepare: Called first in every new process, without arguments.
    """

    def __init__(self, prepare: Callable[[], Any] | None = None) -> None:
        self.prepare = prepare
        self._process: Any = None
        self._pipe: Any = None

    def call(self, function: Callable[..., Any], *arguments: Any, seconds: float, **more: Any) -> Any:
        """Return ``function(*arguments, **more)``, or raise `Ended` after so many seconds of wall time."""
        if self._process is None or not self._process.is_alive():
            self._start()
        process: Any = self._process
        self._pipe.send((function, arguments, more))
        try:
            if not self._pipe.poll(seconds):
                raise Ended(f"not done after {seconds:.0f} s")
            done, result = self._pipe.recv()
        except (EOFError, ConnectionResetError):
            process.join()
            code = process.exitcode
            self.close()
            raise Ended(f"its process died with code {code}") from None
        except Ended:
            self.close()
            raise
        if not done:
            raise RuntimeError(result)
        return result

    def close(self) -> None:
        """End the process; the next call starts another one."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
        self._process = None

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, far_end = context.Pipe()
        self._process = context.Process(target=_serve, args=(far_end, self.prepare), daemon=True)
        self._process.start()
        far_end.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _serve(pipe: Any, prepare: Callable[[], Any] | None) -> None:
    if prepare is not None:
        prepare()
    while True:
        try:
            function, arguments, more = pipe.recv()
        except EOFError:
            return
        try:
            answer = True, function(*arguments, **more)
        except Exception as error:  # whatever a method does wrong is told to the caller
            answer = False, f"{type(error).__name__}: {error}"
        pipe.send(answer)
