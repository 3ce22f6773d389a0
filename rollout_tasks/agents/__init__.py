"""What turns a model into somebody who acts. One module an agent; `base.py` is the contract."""
