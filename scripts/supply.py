"""Says what this project is made of: licences, known weaknesses, pinned versions. Start with: supply.py --help"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.supply_chain.command import main

if __name__ == "__main__":
    main()
