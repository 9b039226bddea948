"""Print every entry as a line of JSON, with "named" where a pass has it as its named entry."""

import json
from dataclasses import asdict

from tests.corpus import corpus
from tests.corpus.named import NAMED

for entry in corpus():
    print(json.dumps(asdict(entry) | {"named": entry.name in NAMED.values()}))
