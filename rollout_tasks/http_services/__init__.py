"""What is offered over HTTP to programs on other machines, and who may use it."""
