"""Boots the VMs of this machine into a pool and looks after them: `rollout_tasks.cli.vm_host`. Start with: vm_host.py --help"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rollout_tasks.cli.vm_host import main

if __name__ == "__main__":
    main()
