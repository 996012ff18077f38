"""Unsupported layer types and fields of Caffe's forks, for messages with the fork's name.

Layer types and fields of forks that this importer computes are in ``proto/caffe.proto`` and ``layers/``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_FASTER_RCNN = "the forks for Fast and Faster R-CNN"
_RFCN = "the fork for R-FCN"
_SSD = "the fork for SSD"
_SEGNET = "the forks for SegNet and ENet"
_BN = "the forks with a BN layer (SegNet, ENet, PSPNet, yjxiong)"
_DEEPLAB = "the forks for DeepLab"
_FLOWNET = "the fork for FlowNet"
_YOLO = "the ports of YOLO to Caffe"
_NVIDIA = "NVIDIA's fork (NVCaffe)"
_INTEL = "Intel's fork"
_OPENPOSE = "the fork for OpenPose"
_FACES = "the forks for face recognition (center loss, SphereFace, AM-Softmax)"
_TEXT = "the forks for text recognition (CTPN, warp-ctc, caffe-lstm)"

_TYPES_OF_FORKS: Final[Mapping[str, str]] = {
    _FASTER_RCNN: "ROIPooling ROIAlign ROIMaskPooling ROIWarping SmoothL1Loss Proposal ProposalTarget AnchorTarget"
    " FrcnnProposal FrcnnRoiData",
    _RFCN: "PSROIPooling BoxAnnotatorOHEM SmoothL1LossOHEM SoftmaxWithLossOHEM DeformableConvolution"
    " DeformablePSROIPooling",
    _SSD: "AnnotatedData VideoData MultiBoxLoss PriorBox DetectionOutput DetectionEvaluate",
    _SEGNET: "DenseImageData SpatialDropout",
    _BN: "BN",
    _DEEPLAB: "ImageSegData MatRead MatWrite DenseCRF UniqueLabel SegAccuracy AdapBiasChannel DomainTransform"
    " MultiStageMeanfield",
    _FLOWNET: "Correlation Correlation1D FlowWarp Resample Downsample DataAugmentation FlowAugmentation"
    " GenerateAugmentationParameters L1Loss LpqLoss ChannelNorm CustomData ImgWriter FLOWriter Mean",
    _YOLO: "Reorg RegionLoss Yolov3 YoloDetectionOutput Yolov3DetectionOutput EvalDetection BoxData",
    _NVIDIA: "DetectNetTransformation",
    _INTEL: "BatchReduction ContinuationIndicator",
    _OPENPOSE: "ImResize Nms CPMData",
    _FACES: "CenterLoss MarginInnerProduct LabelSpecificAdd TripletLoss",
    _TEXT: "WarpCTC CtcLoss CTCLoss Transpose Reverse Lstm",
    "the fork with spatial transformers": "SpatialTransformer",
    "the fork with focal loss": "FocalLoss",
}

_FIELDS_OF_FORKS: Final[Mapping[str, Mapping[str, str]]] = {
    "NetParameter": {
        _INTEL: "engine compile_net_state bn_stats_batch_size multinode",
        _NVIDIA: "default_forward_type default_backward_type default_forward_math default_backward_math"
        " global_grad_scale global_grad_scale_adaptive",
    },
    "LayerParameter": {
        _FASTER_RCNN: "roi_pooling_param roi_align_param roi_warping_param roi_mask_pooling_param smooth_l1_loss_param"
        " proposal_param",
        _RFCN: "psroi_pooling_param box_annotator_ohem_param deformable_convolution_param"
        " deformable_psroi_pooling_param",
        _SSD: "annotated_data_param video_data_param multibox_loss_param prior_box_param detection_output_param"
        " detection_evaluate_param",
        _SEGNET: "dense_image_data_param spatial_dropout_param",
        _BN: "bn_param",
        _DEEPLAB: "mat_read_param mat_write_param densecrf_param dense_crf_param unique_label_param"
        " multi_stage_meanfield_param",
        _FLOWNET: "correlation_param augmentation_param coeff_schedule_param l1_loss_param lpq_loss_param"
        " resample_param downsample_param flow_warp_param writer_param reader_param mean_param",
        _YOLO: "reorg_param region_loss_param yolov3_param yolo_detection_output_param yolov3_detection_output_param"
        " eval_detection_param",
        _NVIDIA: "detectnet_groundtruth_param detectnet_augmentation_param forward_type backward_type forward_math"
        " backward_math",
        _INTEL: "batch_reduction_param quantization_param multinode mn_activation_param"
        " mn_grad_compress_param continuation_indicator_param engine",
        _OPENPOSE: "imresize_param nms_param cpm_transform_param",
        _FACES: "center_loss_param margin_inner_product_param label_specific_add_param triplet_loss_param",
        _TEXT: "warp_ctc_param ctc_loss_param transpose_param reverse_param lstm_param",
        "the fork with spatial transformers": "st_param",
        "the fork with focal loss": "focal_loss_param",
    },
    "DropoutParameter": {_FASTER_RCNN: "scale_train"},
    "ConvolutionParameter": {_DEEPLAB: "hole hole_h hole_w"},
    "LossParameter": {_SEGNET: "weight_by_label_freqs class_weighting"},
    "BatchNormParameter": {_NVIDIA: "scale_bias scale_filler bias_filler"},
    "TransformationParameter": {
        _SSD: "resize_param noise_param distort_param expand_param emit_constraint crop_h crop_w",
        _INTEL: "random_resize_param random_aspect_ratio_param flow",
        _NVIDIA: "use_gpu_transform img_rand_resize_lower img_rand_resize_upper var_sz_img_enabled",
    },
    "ImageDataParameter": {_DEEPLAB: "label_type ignore_label"},
    "FillerParameter": {_INTEL: "scale"},
    "SolverParameter": {
        _INTEL: "disabled_update engine warmup_iter warmup_start_lr",
        _SSD: "eval_type ap_version show_per_class_result plateau_winsize",
        _NVIDIA: "min_lr rampup_interval rampup_lr local_lr_auto local_gw_ratio solver_data_type global_grad_scale"
        " store_blobs_in_old_format",
        "the fork for temporal segment networks": "richness",
    },
}


def _by_name(names_of_forks: Mapping[str, str]) -> dict[str, str]:
    return {name: fork for fork, names in names_of_forks.items() for name in names.split()}


_TYPES: Final = _by_name(_TYPES_OF_FORKS)
_TYPES_IN_LOWER_CASE: Final = {name.lower(): fork for name, fork in _TYPES.items()}
_FIELDS: Final = {message: _by_name(names) for message, names in _FIELDS_OF_FORKS.items()}


FIELD_NAMES: Final = frozenset(name for names in _FIELDS.values() for name in names)
"""The fields of all forks in this list."""


def fork_of_type(name: str) -> str:
    """Return the fork of a layer type; empty for a type outside this list.

    Example:
        >>> fork_of_type("ROIPooling")
        'the forks for Fast and Faster R-CNN'
        >>> fork_of_type("Convolutoin")
        ''
    """
    return _TYPES.get(name, "")


def fork_of_old_type(name: str) -> str:
    """Return the fork of a layer type in V1 spelling; empty for a type outside this list.

    Example:
        >>> fork_of_old_type("ROI_POOLING")
        'the forks for Fast and Faster R-CNN'
    """
    return _TYPES_IN_LOWER_CASE.get(name.replace("_", "").lower(), "")


def fork_of_field(message: str, name: str) -> str:
    """Return the fork of a field; empty for a field outside this list.

    Args:
        message: The name of its message in caffe.proto, e.g. ``LayerParameter``.
        name: The field's.
    """
    return _FIELDS.get(message, {}).get(name, "")


OWN_LAYER: Final = "add it as a layer of your own: docs/guides/own_layer.md"
"""The remedy for a layer that is not Caffe's."""
