"""What lets torchvision be imported beside a torch that it was not built for: a text for a `sitecustomize.py`."""

OPERATORS_OF_TORCHVISION = """
import importlib.abc, sys

class Operators(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            import torch
            self.library = torch.library.Library("torchvision", "DEF")
            self.library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            self.library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            kept.append(self.library)

kept = []
sys.meta_path.insert(0, Operators())
"""
"""Those that torchvision itself cannot define, being built for another torch: nobody calls them here, but it looks for them."""
