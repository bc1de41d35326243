"""Times of the browser's client in Node beside Python's, one operation a line: `python tests/benchmarks/web_client.py [--json FILE]`.

Needs `make web`. Both on one core; the native engine with the instructions that it chooses, and with vectors of 128 bits (CLOAKWORK_CPU=baseline).

`--visits 7` measures the page in Chromium instead, against a service on this machine: medians of first visits, browser and service on the cores
of `taskset`. "keys made and uploaded" is from the opening of the upload to the check of the whole, by the server's clock.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cloakwork.fhe_core.client import ClientKey
from cloakwork.models import zoo
from cloakwork.models.program.client_specification import ClientSpecification

WEB = Path(__file__).parents[2] / "web"
sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("api", "models")]

from scoring_server import Server, running  # noqa: E402

MODEL, SET = "mnist-mlp-1x30", "lut2"


def median(work: Callable[[], object], repeats: int = 7) -> float:
    """Milliseconds; the first call warms up."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times[1:])


def native(client: Path) -> dict[str, float]:
    specification = ClientSpecification.from_json(client.read_text())
    key = ClientKey.generate(SET)
    image = (np.arange(specification.input_shape[0]) % 7 / 7)[None]
    answer = key.encrypt_torus(np.zeros(10))
    with tempfile.TemporaryDirectory() as folder:
        return {
            "secret key": median(lambda: ClientKey.generate(SET)),
            "evaluation keys, as an object": median(lambda: key.evaluation_keys().to_bytes()),
            "encryption of an image": median(lambda: specification.encrypt(key, image).to_bytes(), 50),
            "decryption of ten numbers": median(lambda: key.decrypt(answer), 50),
            "key file written (scrypt)": median(lambda: key.save(Path(folder) / "key", "a passphrase"), 3),
        }


def measured(command: list[str], **variables: str) -> dict[str, float]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    times: dict[str, float] = json.loads(done.stdout)
    return times


class Chromium:
    """A browser that is told what to do over two pipes, and not watched: Playwright would read every byte that the page sends."""

    def __init__(self, folder: str) -> None:
        program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
        (theirs_in, self._out), (self._in, theirs_out) = os.pipe(), os.pipe()
        flags = ["--headless=new", "--remote-debugging-pipe", f"--user-data-dir={folder}", "--disable-gpu"]
        flags += ["--no-sandbox"] if os.geteuid() == 0 else []
        shell = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, program, *flags], pass_fds=(theirs_in, theirs_out), stderr=subprocess.DEVNULL
        )
        for theirs in (theirs_in, theirs_out):
            os.close(theirs)
        self._stream = os.fdopen(self._in, "rb")
        self._number = 0

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        os.write(self._out, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        while True:
            data = bytearray()
            while (byte := self._stream.read(1)) != b"\0":
                if not byte:
                    raise RuntimeError("the browser ended")
                data += byte
            answer: dict[str, Any] = json.loads(data)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(answer["error"]["message"])
                return dict(answer["result"])

    def close(self) -> None:
        self.call("Browser.close")
        self._process.wait()


# Milliseconds since the navigation began, as the page has them.
_WAITING = """const until = async (seen) => { while (!seen()) await new Promise((next) => setTimeout(next, 5)); return performance.now(); };
  const button = (name) => [...document.querySelectorAll("button")].find((each) => (each.ariaLabel ?? each.innerText).includes(name));
  const answer = async (digit) => {
    const asked = performance.now();
    button(`Sample digit ${digit}`).click();
    button("Encrypt and ask").click();
    return (await until(() => document.getElementById("status").innerText.startsWith(`Answered: ${digit}`))) - asked;
  };"""
_FIRST_ANSWER = f"""(async () => {{
  {_WAITING}
  const usable = await until(() => button("Sample digit 1") && button("Encrypt and ask"));
  return [usable, usable + await answer(1)];
}})()"""
_LATER_ANSWERS = f"""(async () => {{
  {_WAITING}
  const times = [];
  for (const digit of [7, 0, 4, 3, 1]) times.push(await answer(digit));
  return times.sort((a, b) => a - b)[2];
}})()"""


def evaluated(browser: Chromium, session: str, expression: str) -> Any:
    found = browser.call("Runtime.evaluate", session, expression=expression, awaitPromise=True, returnByValue=True)
    return found["result"].get("value")


def visit(browser: Chromium, server: Server) -> dict[str, float]:
    """One first visit of the page, in milliseconds: no key, no cache."""
    context = browser.call("Target.createBrowserContext")["browserContextId"]
    page = browser.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
    session = browser.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
    browser.call("Page.navigate", session, url=server.url)
    end = time.monotonic() + 60
    while (found := evaluated(browser, session, _FIRST_ANSWER)) is None:  # its document was replaced
        if time.monotonic() > end:
            raise RuntimeError("the page did not answer")
    usable, first = found
    with server.client() as http:
        (key,) = http.get("/v2/keys").json()["keys"]
        later = evaluated(browser, session, _LATER_ANSWERS)
        http.delete(f"/v2/keys/{key['id']}")
    browser.call("Target.disposeBrowserContext", browserContextId=context)
    return {
        "page usable": usable,
        "keys made and uploaded": 1000 * (key["used_at"] - key["created_at"]),
        "first answer, from the beginning of the visit": first,
        "later answers": later,
    }


def visits(count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "models" / MODEL
        place.mkdir(parents=True)
        zoo.load_model(MODEL).save(place / "1.clkm")
        with running(Path(folder)) as server:
            browser = Chromium(f"{folder}/browser")
            try:
                times = [visit(browser, server) for _ in range(count)]
            finally:
                browser.close()
    return {name: statistics.median(each[name] for each in times) for name in times[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--native", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--visits", type=int, default=0, help="first visits of the page in Chromium")
    arguments = parser.parse_args()
    if arguments.visits > 0:
        found = visits(arguments.visits)
        print("\n".join(f"| {name} | {ms:.0f} |" for name, ms in found.items()))
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(found, indent=1) + "\n")
        return
    if arguments.native is not None:
        print(json.dumps(native(arguments.native)))
        return
    with tempfile.TemporaryDirectory() as folder:
        client = Path(folder) / "client.json"
        client.write_text(zoo.load_model(MODEL).client.to_json())
        python = [sys.executable, __file__, "--native", str(client)]
        columns = {
            "Node": measured(["node", str(WEB / "test" / "bench.mjs"), str(client), SET]),
            "native": measured(python),
            "native, 128 bits": measured(python, CLOAKWORK_CPU="baseline"),
        }
    wasm = (WEB / "dist" / "client.wasm").read_bytes()
    sizes = {"bytes": len(wasm), "gzip_bytes": len(gzip.compress(wasm, 9))}
    print(f"client.wasm: {sizes['bytes']} bytes, {sizes['gzip_bytes']} with gzip -9\n")
    print(f"| ms, set {SET} | {' | '.join(columns)} | Node / native |\n|---|{'---:|' * (len(columns) + 1)}")
    for name in columns["Node"]:
        times = [column[name] for column in columns.values()]
        print(f"| {name} | {' | '.join(f'{ms:.3g}' for ms in times)} | {times[0] / times[1]:.1f} |")
    if arguments.json is not None:
        arguments.json.write_text(
            json.dumps({"set": SET, "model": MODEL, "times_ms": columns, **sizes}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
