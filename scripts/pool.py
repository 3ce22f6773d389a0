"""Shows a pool of VMs and operates it: `rollout_tasks.cli.pool`. Start with: pool.py --help"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rollout_tasks.cli.pool import main

if __name__ == "__main__":
    main()
