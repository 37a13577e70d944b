"""What `arbiter demo` serves, as a configuration: the echo provider under every usual model name, and no keys."""

DEMO = """\
server: { workers: 1 }
auth: { mode: none }
providers:
  echo:
    type: echo
    models: [claude-opus-4-5, claude-sonnet-4-5, claude-haiku-4-5, gpt-5.2, gpt-5.2-codex, gpt-5.2-mini, o4-mini,
      gemini-3-pro, gemini-3-flash, deepseek-chat, deepseek-reasoner, grok-4, kimi-k2, glm-4.6, llama-4, mistral-large,
      qwen3-coder, echo]
routing: { default_provider: echo }
telemetry: { log: { format: text } }
"""
