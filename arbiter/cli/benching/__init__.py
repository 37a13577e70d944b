"""What `arbiter bench` is made of: a copy of the configuration, an upstream, a client, and what the kernel counts."""
