"""Object detection: networks with torchvision's names and state dict keys."""

from .backbone import BackboneWithFPN, mobilenet_backbone, resnet_fpn_backbone
from .boxes import AnchorGenerator, DefaultBoxGenerator
from .faster_rcnn import (
    FasterRCNN,
    FastRCNNConvFCHead,
    FastRCNNPredictor,
    RegionProposalNetwork,
    RoIHeads,
    RPNHead,
    TwoMLPHead,
    fasterrcnn_mobilenet_v3_large_320_fpn,
    fasterrcnn_mobilenet_v3_large_fpn,
    fasterrcnn_resnet50_fpn,
    fasterrcnn_resnet50_fpn_v2,
)
from .fcos import FCOS, fcos_resnet50_fpn
from .keypoint_rcnn import KeypointRCNN, KeypointRCNNHeads, KeypointRCNNPredictor, keypointrcnn_resnet50_fpn
from .mask_rcnn import MaskRCNN, MaskRCNNHeads, MaskRCNNPredictor, maskrcnn_resnet50_fpn, maskrcnn_resnet50_fpn_v2
from .retinanet import RetinaNet, RetinaNetHead, retinanet_resnet50_fpn, retinanet_resnet50_fpn_v2
from .ssd import SSD, ssd300_vgg16
from .ssdlite import ssdlite320_mobilenet_v3_large

__all__ = [
    "AnchorGenerator", "BackboneWithFPN", "DefaultBoxGenerator", "FCOS", "FastRCNNConvFCHead", "FastRCNNPredictor",
    "FasterRCNN", "KeypointRCNN", "KeypointRCNNHeads", "KeypointRCNNPredictor", "MaskRCNN", "MaskRCNNHeads",
    "MaskRCNNPredictor", "RPNHead", "RegionProposalNetwork", "RetinaNet", "RetinaNetHead", "RoIHeads", "SSD", "TwoMLPHead",
    "fasterrcnn_mobilenet_v3_large_320_fpn", "fasterrcnn_mobilenet_v3_large_fpn", "fasterrcnn_resnet50_fpn",
    "fasterrcnn_resnet50_fpn_v2", "fcos_resnet50_fpn", "keypointrcnn_resnet50_fpn", "maskrcnn_resnet50_fpn",
    "maskrcnn_resnet50_fpn_v2", "mobilenet_backbone", "resnet_fpn_backbone", "retinanet_resnet50_fpn",
    "retinanet_resnet50_fpn_v2", "ssd300_vgg16", "ssdlite320_mobilenet_v3_large",
]  # fmt: skip
