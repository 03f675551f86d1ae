/* quorum_cases.h - cases of the suite council that have a file of their own. */
#ifndef DDP_TESTS_UNIT_RENDEZVOUS_QUORUM_QUORUM_CASES_H
#define DDP_TESTS_UNIT_RENDEZVOUS_QUORUM_QUORUM_CASES_H

#include <check.h>

TCase *council_takeover_cases(void);

#endif
