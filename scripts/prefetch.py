"""Downloads the files that OSWorld tasks need, ahead of a run: `rollout_tasks.cli.prefetch`. Start with: prefetch.py --help"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rollout_tasks.cli.prefetch import main

if __name__ == "__main__":
    main()
