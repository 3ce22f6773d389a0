"""What a worker does with one rollout: claims it, attempts it, and commits its verdict. `rollout` is where it begins."""
