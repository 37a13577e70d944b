"""Arbiter: an LLM gateway for coding agents."""

__version__ = "0.1.0"
