"""Questions that one command and one page ask the store: one module for each noun."""
