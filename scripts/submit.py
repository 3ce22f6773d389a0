"""Submits a benchmark as a run, or follows, resumes, cancels one: `rollout_tasks.cli.submit_script`. See: submit.py --help"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rollout_tasks.cli.submit_script import main

if __name__ == "__main__":
    main()
