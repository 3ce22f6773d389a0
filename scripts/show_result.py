"""Shows a finished run's results: `rollout_tasks.cli.show`. Start with: show_result.py --help"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rollout_tasks.cli.show import main

if __name__ == "__main__":
    main()
