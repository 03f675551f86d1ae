/* tree.h - removing a directory and what is in it. */
#ifndef DDP_COMMON_TREE_H
#define DDP_COMMON_TREE_H

#define CO_TREE_MAX_DEPTH 8 /* what is deeper stays, with the directories above it */

/* Remove a directory that belongs to this user alone, with all in it. Symbolic links are removed,
 * not followed. Safe to call when it is gone already, and for NULL; what cannot be removed
 * stays. */
void co_tree_remove(const char *path);

#endif
