"""Every scripted conversation of this folder, through a real `arbiter serve`, one test per case."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cases.adapter import arbiter_config
from tests.fakes.gateway import STARTS_S, STOPS_S, free_port

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CASES = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(HERE.glob("*.json"))}
ARBITER = [sys.executable, "-m", "arbiter"]


def wait_until_ready(base_url: str, gateway: subprocess.Popen[bytes], log: Path) -> None:
    give_up = time.monotonic() + STARTS_S
    while time.monotonic() < give_up:
        if gateway.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"{base_url}/health", timeout=1) as answer:
                if answer.status == 200:
                    return
        except (OSError, urllib.error.URLError):
            time.sleep(0.05)
    pytest.fail(f"the gateway did not come up:\n{log.read_text('utf-8', 'replace')[-4000:]}", pytrace=False)


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Run the selected cases side by side against one gateway; case id -> what the runner found."""
    wanted = [
        item.callspec.params["case_id"]
        for item in request.session.items
        if hasattr(item, "callspec") and "case_id" in item.callspec.params
    ]
    folder = tmp_path_factory.mktemp("cases")
    port, mock_port = free_port(), free_port()
    runner = [sys.executable, str(HERE / "run_cases.py"), "--mock-port", str(mock_port)]
    neutral = json.loads(subprocess.run([*runner, "--emit-config"], check=True, capture_output=True).stdout)
    config = folder / "arbiter.yaml"
    config.write_text(yaml.safe_dump(arbiter_config(neutral, folder / "data"), sort_keys=False), "utf-8")

    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "ARBITER_DATA_DIR": str(folder / "data")}
    env |= {name: os.environ[name] for name in ("ARBITER_PURE", "HOME", "LANG") if name in os.environ}
    log = folder / "gateway.log"
    with log.open("wb") as out:
        gateway = subprocess.Popen(
            [*ARBITER, "serve", "--config", str(config), "--workers", "1", "--port", str(port)],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            base_url = f"http://127.0.0.1:{port}"
            wait_until_ready(base_url, gateway, log)
            record = shlex.join([sys.executable, str(HERE / "record.py"), str(folder / "data" / "arbiter.db")])
            subprocess.run(
                [
                    *runner,
                    "--base-url",
                    base_url,
                    "--jobs",
                    "8",
                    "--quiet",
                    "--json",
                    str(folder / "results.json"),
                    "--only",
                    f"^({'|'.join(map(re.escape, wanted))})$",
                    "--record-cmd",
                    record,
                ],
                check=False,
                stdout=subprocess.DEVNULL,
                timeout=300,
            )
            found = json.loads((folder / "results.json").read_text("utf-8"))
            yield {one["id"]: one | {"log": log} for one in found}
            assert gateway.poll() is None, log.read_text("utf-8", "replace")[-4000:]
        finally:
            gateway.send_signal(signal.SIGTERM)
            try:
                gateway.wait(STOPS_S)
            except subprocess.TimeoutExpired:
                gateway.kill()
                gateway.wait(5)
                raise


@pytest.mark.parametrize("case_id", CASES)
def test_case(case_id: str, request: pytest.FixtureRequest) -> None:
    """What the case asks of a gateway holds, its recorded rows included."""
    found = request.getfixturevalue("results")[case_id]
    assert found["result"] == "pass", "\n".join([found["title"], *found["problems"], f"gateway log: {found['log']}"])
    assert not found["record_unchecked"]
