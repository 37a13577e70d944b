"""Asking: one run of the load generator for one workload, and what it found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench import tools
from bench.compare.peers.base import Target
from bench.compare.workloads import Workload

GRACE_S = 20  # for the program itself, behind its own limit


@dataclass(frozen=True)
class Client:
    """The load generator, and the core it stays on (None: any)."""

    core: int | None

    def ask(self, target: Target, w: Workload, requests: int, gap_ms: int = 0) -> dict[str, Any]:
        """Its report; `lost` is what of `asked` was not answered, or not as it should be, in `errors_by_kind`."""
        options: list[object] = [
            "--format", w.speaks, "--connections", w.connections, "--requests", requests,
            "--body-bytes", w.body_bytes, "--answer", w.answer, "--think-ms", gap_ms, "--spread-ms", w.spread_ms,
            "--limit", w.limit_s,
        ]  # fmt: skip
        for name, value in target.headers.items():
            options += ["--header", f"{name}: {value}"]
        url = f"http://127.0.0.1:{target.port}{target.path}"
        report = tools.load(url, target.model, *options, core=self.core, timeout_s=w.limit_s + GRACE_S)
        return report | {"asked": requests, "lost": requests - (report["requests"] - report["errors"])}
