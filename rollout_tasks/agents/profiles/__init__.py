"""What models say, read as actions: one module per protocol that computer-use models speak. Pure: no model, no desktop."""
