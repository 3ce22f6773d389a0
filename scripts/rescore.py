"""Scores a finished run again with another metric: `rollout_tasks.cli.rescore`. Start with: rescore.py --help"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rollout_tasks.cli.rescore import main

if __name__ == "__main__":
    main()
