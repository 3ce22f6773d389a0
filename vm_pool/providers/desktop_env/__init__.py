"""The providers that desktop-env has, each under its own name: vmware, virtualbox, docker, aws, azure, aliyun, volcengine.

What desktop-env does there suits a script that owns its process: endless loops, lock files in the current folder, signal
handlers, output. So for each VM it runs in a process of its own, the keeper: `keeper` is that process's program, `kinds` says how
each of desktop-env's providers is used there. `provider` and `keeping` are this side of it.
"""
