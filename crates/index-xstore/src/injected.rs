//! Deliberate bugs of this crate; those of its leaves are `farsight_layout`'s.

farsight_base::bugs! {
    /// A client takes a key right of the leaf that it was sent to for absent.
    NO_SIBLING_STEP = "NoSiblingStep";
    /// A writer believes a client's hint without a look at the leaf's fences.
    HINT_TRUSTED = "HintTrusted";
    /// What a split changes is not trained again.
    DROPPED_RETRAIN = "DroppedRetrain";
    /// The model is trained on the leaves' lowest keys instead of their fences.
    TRAINED_ON_KEYS = "TrainedOnKeys";
    /// A client never replaces a sub-model that it has.
    STALE_MODEL_KEPT = "StaleModelKept";
    /// A client takes parts of another generation for those of its own.
    GENERATIONS_MIXED = "GenerationsMixed";
    /// A client takes what it reads in a block for a leaf's number, although others may be in the block by
    /// now.
    REUSED_BLOCK_TRUSTED = "ReusedBlockTrusted";
    /// A client repeats READs for ever instead of asking the server.
    UNBOUNDED_RETRY = "UnboundedRetry";
    /// A client follows a sibling wherever it points.
    BOUNDS_NOT_CHECKED = "BoundsNotChecked";
    /// A scan takes the next leaf of its plan, although a leaf stands between: its cursor skips keys.
    SCAN_SKIPS_SIBLING = "ScanSkipsSibling";
    /// The same of a scan downwards.
    DESCENT_SKIPS_SIBLING = "DescentSkipsSibling";
    /// A scan that comes to the end of a part takes it for the end of the table.
    SCAN_ENDS_WITH_PART = "ScanEndsWithPart";
    /// A merge gives the right leaf's block back as it was.
    RIGHT_LEFT_STANDING = "RightLeftStanding";
    /// A merge rewrites the left leaf under the incarnation that it has.
    MERGED_IN_PLACE = "MergedInPlace";
    /// A merge widens the left leaf's fences before it holds the right one's pairs: readers see half of it.
    WIDENED_BEFORE_FILLED = "WidenedBeforeFilled";
    /// A scan that knows no sibling takes the next leaf of its plan: its cursor skips what was merged away.
    SCAN_SKIPS_MERGED = "ScanSkipsMerged";
    /// A client takes the value before one write of a batch for that before the next.
    OLD_VALUE_OF_ANOTHER = "OldValueOfAnother";
    /// A load that ends early leaves the blocks of its leaves where they are.
    LOADED_BLOCKS_KEPT = "LoadedBlocksKept";
    /// A block that was written over in its place is given back.
    OWN_BLOCK_RETIRED = "OwnBlockRetired";
    /// A writer counts a pair that has ended.
    ENDED_PAIR_COUNTED = "EndedPairCounted";
    /// What a budget drives out keeps its place, while its lines are given to others.
    DRIVEN_OUT_IN_PLACE = "DrivenOutInPlace";
}
