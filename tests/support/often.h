/* often.h - a check for what a test passes thousands of times. */
#ifndef DDP_TESTS_SUPPORT_OFTEN_H
#define DDP_TESTS_SUPPORT_OFTEN_H

#include <check.h>

/* Check writes down each ck_assert() that holds, for the case that the test dies after it. */
#define OFTEN_CHECK(condition)                                                                     \
    do {                                                                                           \
        if (!(condition))                                                                          \
            ck_abort_msg("%s", #condition);                                                        \
    } while (0)

#endif
