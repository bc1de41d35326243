"""Imports once what services, pages and commands import, and forks a process for each: imports are most of what these cost.

Usage: python warm_python.py SOCKET MODULE ..

Ends when its standard input does. A request is one message of JSON with the descriptors of standard input, output and error:
{"folder", "environment", "module", "umask"} for `python -m MODULE`, answered with the number of the process and, when it has ended, its exit status;
{"folder", "environment", "arguments"} for `cloakwork ARGUMENTS ..`, whose exit status is the answer; {"folder", "environment", "notebook"} for a
page, whose blocks follow as messages {"code", "output", "errors"} (three paths), each answered "done" or "failed".
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

MESSAGE_BYTES = 1 << 17


def serve(path: str, modules: list[str]) -> Callable[[], None]:
    """Returns in a forked process, with what it has to do."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(path)
    for name in modules:
        importlib.import_module(name)
    listening.listen(16)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that have answered
    while True:
        if sys.stdin in select.select([listening, sys.stdin], [], [])[0]:
            os._exit(0)
        connection, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return _answer(connection)
        connection.close()


def _answer(connection: socket.socket) -> Callable[[], None]:
    message, descriptors, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, 3)
    if not message:
        os._exit(0)  # somebody looked whether this is there
    request = json.loads(message)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    if "notebook" in request:
        connection.send(str(os.getpid()).encode())
        return lambda: run_blocks(connection, request["notebook"])
    forked = os.fork()
    if forked != 0:
        if "module" in request:
            connection.send(str(forked).encode())
        _, status = os.waitpid(forked, 0)
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    connection.close()
    if "module" in request:
        return lambda: run_module(request["module"], request["umask"])
    return lambda: run_command(request["arguments"])


def run_module(name: str, umask: int) -> None:
    if umask >= 0:
        os.umask(umask)
    sys.argv = [name]
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def run_command(arguments: list[str]) -> None:
    from cloakwork.app.cli.main import main

    sys.argv = ["cloakwork", *arguments]
    main()


def run_blocks(connection: socket.socket, notebook: bool) -> None:
    warnings.simplefilter("ignore")
    run = cell_runner() if notebook else block_runner()
    while message := connection.recv(MESSAGE_BYTES):
        paths = json.loads(message)
        for number, name in ((1, "output"), (2, "errors")):
            descriptor = os.open(paths[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(descriptor, number)
            os.close(descriptor)
        try:
            run(Path(paths["code"]))
            answer = b"done"
        except BaseException:
            traceback.print_exc()
            answer = b"failed"
        sys.stdout.flush()
        sys.stderr.flush()
        connection.send(answer)


def block_runner() -> Callable[[Path], None]:
    names = {"__name__": "__main__"}

    def run(code: Path) -> None:
        exec(compile(code.read_text(encoding="utf-8"), code, "exec"), names)

    return run


def cell_runner() -> Callable[[Path], None]:
    """Cells run as in a notebook; a picture that one shows is printed as <image/png>."""
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    shell: Any = InteractiveShell.instance()

    def run(code: Path) -> None:
        with capture_output() as captured:
            result = shell.run_cell(code.read_text(encoding="utf-8"), store_history=True)
        sys.stdout.write(captured.stdout)
        sys.stderr.write(captured.stderr)
        for output in captured.outputs:
            sys.stdout.writelines(f"<{kind}>\n" for kind in output.data if kind.startswith("image/"))
        result.raise_error()

    return run


def status_of(work: Callable[[], None]) -> int:
    """The exit status that Python would end with."""
    try:
        work()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)  # noqa: T201
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    sys.path[0] = ""  # as of `python -c`, for what a page imports from its folder
    status = status_of(serve(sys.argv[1], sys.argv[2:]))
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as Python does
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # libraries that were imported before the fork may wait for threads that are not in this process


if __name__ == "__main__":
    main()
