"""`python -m rdpfl_sim` is `rdpfl-sim`."""

import sys

from rdpfl_sim.cli.main import main

sys.exit(main())
