"""`python -m wsdsl` is the command `wsdsl`."""

import sys

from wsdsl.cli import main

sys.exit(main())
