"""A program for the multi-process rollout framework, of which only the line of the import is another."""

from __future__ import annotations

PROGRAM = """\
from rollout_tasks import run_parallel_rollout, ParallelRolloutConfig
from benchmark import Benchmark

benchmark = Benchmark(data_path={items!r})
config = ParallelRolloutConfig(
    num_rollouts=10,
    num_vms=5,
    env_mode="math",
    output_dir="results/custom_run",
    use_resource_pool=True,
    env_kwargs={{
        "provider_name": "vmware", "path_to_vm": "/path/to/vm.vmx", "snapshot_name": "clean_desktop",
        "action_space": "computer_13", "observation_type": "screenshot_a11y_tree", "screen_width": 1920,
        "screen_height": 1080, "headless": False, "require_a11y_tree": True, "os_type": "Ubuntu",
        "client_password": "your_password", "sleep_after_execution": 2.0, "enable_recording": True,
    }},
    agent_config_dict={{"evaluation_metric": "final_number", "max_turns": 50, "max_retries": 3}},
)
results = run_parallel_rollout(config, benchmark)
print(sum(one["success"] for one in results["worker_results"]), len(results["worker_results"][0]["messages"]) > 2)
print(sum(one.score for one in results["benchmark_evaluation"]), results["summary"]["average_score"])
"""
"""As a format: `items` is the benchmark's file."""
PRINTED = "25 True\n25.0 1.0\n"
