"""Object detection: Faster R-CNN, with torchvision's names and state dict keys."""

from .backbone import BackboneWithFPN, resnet_fpn_backbone
from .boxes import AnchorGenerator
from .faster_rcnn import (
    FasterRCNN,
    FastRCNNPredictor,
    RegionProposalNetwork,
    RoIHeads,
    RPNHead,
    TwoMLPHead,
    fasterrcnn_resnet50_fpn,
)

__all__ = [
    "AnchorGenerator", "BackboneWithFPN", "FastRCNNPredictor", "FasterRCNN", "RPNHead", "RegionProposalNetwork", "RoIHeads",
    "TwoMLPHead", "fasterrcnn_resnet50_fpn", "resnet_fpn_backbone",
]  # fmt: skip
