"""The providers of desktop-env, each under its own name: vmware, virtualbox, docker, aws, azure, aliyun, volcengine.

desktop-env's code suits a script that owns its process: endless loops, lock files in the current folder, signal
handlers, output. So each VM has its own process for it, the keeper: `keeper` is that process's program, and `adapters`
adapts each of desktop-env's providers there. `provider` and `keeper_client` are this process's side.
"""
