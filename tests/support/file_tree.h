/* file_tree.h - a directory of files that a test writes: a TEST DOUBLE of /proc, /sys and /dev. */
#ifndef DDP_TESTS_SUPPORT_FILE_TREE_H
#define DDP_TESTS_SUPPORT_FILE_TREE_H

#define FILE_TREE_BYTES 64

/* Make an empty one; its path precedes the real paths. */
void file_tree_make(char root[FILE_TREE_BYTES]);
void file_tree_remove(const char *root);

/* Write root/name ("/proc/self/cgroup"), with the directories above it. */
void file_tree_put(const char *root, const char *name, const char *content);

#endif
