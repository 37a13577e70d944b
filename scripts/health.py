#!/usr/bin/env python3
"""Exit 0 when the gateway of this container answers GET /health with 200; for the image's HEALTHCHECK."""

import http.client
import os
import sys

connection = http.client.HTTPConnection("127.0.0.1", int(os.environ.get("PORT", "8080")), timeout=2)
try:
    connection.request("GET", "/health")
    sys.exit(0 if connection.getresponse().status == 200 else 1)
except OSError as error:
    sys.exit(f"no answer: {error}")
