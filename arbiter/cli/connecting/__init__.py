"""What `arbiter connect` is made of.

What each agent reads (`agents`), how its files are edited so that everything else in them stays as it is (`documents`,
and a module per format), and what is needed to take it all back (`changes`, `records`).
"""
