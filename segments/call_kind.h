/* call_kind.h - the kinds of collective calls: the numbers that ranks use among each other and for
 * their ddprun. Pure. */
#ifndef DDP_SEGMENTS_CALL_KIND_H
#define DDP_SEGMENTS_CALL_KIND_H

enum call_kind {
    CALL_BARRIER = 1,
    CALL_ALL_REDUCE,
    CALL_REDUCE,
    CALL_BROADCAST,
    CALL_ALL_GATHER,
    CALL_REDUCE_SCATTER,
    CALL_GATHER,
    CALL_SCATTER,
    CALL_ALL_TO_ALL,
    CALL_GROUP_SPLIT,   /* an all_gather of the ranks' arguments */
    CALL_GROUP_DESTROY, /* no rank waits in it */
    CALL_N_KINDS,       /* at most 64: rank_status.h */
};

const char *call_kind_name(unsigned kind);   /* "all_reduce"; "?" for an unknown one */
const char *call_dtype_name(unsigned dtype); /* of enum ddp_dtype: "float32"; else "?" */

#endif
