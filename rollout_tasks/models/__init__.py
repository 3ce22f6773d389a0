"""Models: clients of their endpoints, pools of replicas, the session gateway, and the scripted model."""
