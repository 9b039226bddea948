"""`python -m tests.corpus`: every entry as a line of JSON."""

import json
from dataclasses import asdict

from tests.corpus import corpus

for entry in corpus():
    print(json.dumps(asdict(entry)))
