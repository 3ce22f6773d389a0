"""Builds the image of desktops: `rollout_tasks.cli.image`. Start with: build_guest.py --help"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rollout_tasks.cli.image import main

if __name__ == "__main__":
    main()
