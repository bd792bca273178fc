"""From one machine to a pod: what takes a job there, what it will cost, and how far such predictions were off."""

from typing import TYPE_CHECKING

from phasepoint.core.lazy import lazy_names

if TYPE_CHECKING:
    from phasepoint.scale.techniques.batch_norm import distributed_batch_norm as distributed_batch_norm
    from phasepoint.scale.techniques.buckets import bucketed_batches as bucketed_batches
    from phasepoint.scale.techniques.evaluation import distributed_eval as distributed_eval
    from phasepoint.scale.techniques.gradient_sum import two_level_all_reduce as two_level_all_reduce
    from phasepoint.scale.techniques.lars import lars as lars
    from phasepoint.scale.techniques.lars import warmup_then_decay as warmup_then_decay
    from phasepoint.scale.techniques.lstm import lstm as lstm
    from phasepoint.scale.techniques.recurrence import recurrence as recurrence
    from phasepoint.scale.techniques.space_to_depth import space_to_depth_conv as space_to_depth_conv
    from phasepoint.scale.techniques.spatial import spatial_conv as spatial_conv
    from phasepoint.scale.techniques.weight_update import shard_weight_update as shard_weight_update

__all__ = [
    "bucketed_batches",
    "distributed_batch_norm",
    "distributed_eval",
    "lars",
    "lstm",
    "recurrence",
    "shard_weight_update",
    "space_to_depth_conv",
    "spatial_conv",
    "two_level_all_reduce",
    "warmup_then_decay",
]
__getattr__ = lazy_names(
    __name__,
    {
        "bucketed_batches": ".techniques.buckets",
        "distributed_batch_norm": ".techniques.batch_norm",
        "distributed_eval": ".techniques.evaluation",
        "lars": ".techniques.lars",
        "lstm": ".techniques.lstm",
        "recurrence": ".techniques.recurrence",
        "shard_weight_update": ".techniques.weight_update",
        "space_to_depth_conv": ".techniques.space_to_depth",
        "spatial_conv": ".techniques.spatial",
        "two_level_all_reduce": ".techniques.gradient_sum",
        "warmup_then_decay": ".techniques.lars",
    },
)
