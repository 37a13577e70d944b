"""The configuration: the file as written, read with good manners, resolved into one immutable snapshot.

`schema` says which keys there are, `source` and `decode` read YAML into it and name the line of every fault, `load`
resolves it into what `snapshot` holds: plain frozen values, the only thing the rest of Arbiter sees.
"""
