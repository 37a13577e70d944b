"""The release's price list as the gateway's processes use it."""

from __future__ import annotations

import subprocess
import sys

from arbiter.config.load import parse
from arbiter.config.rates import Rate
from arbiter.ledger.tariffs import known, known_apart

VENDORS = """
providers:
  anthropic: { type: anthropic, key: k, models: [claude-sonnet-4-5, { id: h, upstream: claude-haiku-4-5 }, nobodys] }
  lan: { type: openai, endpoint: "http://10.0.0.3/v1", models: [gpt-5.2] }
  proxy: { type: openai, endpoint: "http://10.0.0.4/v1", models: [gpt-5.2], priced_as: openai }
models: [{ model: lan/gpt-5.2, input_usd_per_mtok: 9 }]
"""


def test_declared_models_are_looked_up_by_a_process_of_its_own() -> None:
    """What it finds is what we would have found, and we have not loaded the list for it."""
    program = f"""
import sys
from arbiter.config.load import parse
from arbiter.ledger.tariffs import known, known_apart
snapshot = parse({VENDORS!r}, "f", {{}}, look_up=known_apart)
assert "genai_prices" not in sys.modules, "the list is in our memory"
apart = {{name: one.known for name, one in snapshot.providers.items()}}
assert apart == known(snapshot.pricing, snapshot.providers)
assert "genai_prices" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    found = parse(VENDORS, "f", {}, look_up=known_apart).providers
    sonnet = found["anthropic"].rate("claude-sonnet-4-5")
    assert sonnet is not None and (sonnet.input, sonnet.output) == (3_000_000, 15_000_000)
    assert found["anthropic"].rate("claude-haiku-4-5") is not None and found["anthropic"].rate("nobodys") is None
    assert (found["anthropic"].window("claude-sonnet-4-5"), found["anthropic"].window("nobodys")) == (200_000, None)
    assert found["lan"].rate("gpt-5.2") == Rate(input=9_000_000)
    assert found["lan"].window("gpt-5.2") is None and found["proxy"].window("gpt-5.2") is not None
    assert found["proxy"].rate("gpt-5.2") == parse(VENDORS, "f", {}, look_up=known).providers["proxy"].rate("gpt-5.2")


def test_providers_at_addresses_of_ones_own_need_no_list() -> None:
    """It takes a third of a second and 30 MB to load."""
    program = """
import sys
from arbiter.config.load import demo_snapshot, parse
from arbiter.ledger.tariffs import known, known_apart
text = 'providers: { lan: { type: openai, endpoint: "http://127.0.0.1:9/v1", models: [gpt-5.2] } }'
parse(text, "f", {}, look_up=known)
parse(text, "f", {}, look_up=known_apart)
assert "genai_prices" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
