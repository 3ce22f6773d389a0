"""Plants defects in the code and counts which of them the tests notice. Start with: mutation.py --help"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.mutation.command import main

if __name__ == "__main__":
    main()
