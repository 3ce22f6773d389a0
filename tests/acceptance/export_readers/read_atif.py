"""Validates ATIF trajectories below a folder as Harbor does, and writes each as its models have it, one per line."""

import json
import sys
from pathlib import Path

from harbor.models.trajectories import Trajectory
from harbor.utils.trajectory_validator import TrajectoryValidator

folder, output = map(Path, sys.argv[1:])
with output.open("w") as lines:
    for path in sorted(folder.rglob("trajectory.json")):
        validator = TrajectoryValidator()
        if not validator.validate(path):
            sys.exit(f"{path}: {validator.get_errors()}")
        trajectory = Trajectory(**json.loads(path.read_text()))
        print(json.dumps({"path": str(path), "trajectory": trajectory.to_json_dict()}), file=lines)
