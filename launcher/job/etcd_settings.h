/* etcd_settings.h - how a node comes in at etcd: what --rdzv-conf says of it. Plain data. */
#ifndef DDP_LAUNCHER_JOB_ETCD_SETTINGS_H
#define DDP_LAUNCHER_JOB_ETCD_SETTINGS_H

#include <stdbool.h>

enum { ETCD_SETTING_BYTES = 256 }; /* of each text, with the NUL */

struct etcd_settings { /* an empty text: not given */
    bool is_https;
    char ca_cert[ETCD_SETTING_BYTES], cert[ETCD_SETTING_BYTES], key[ETCD_SETTING_BYTES]; /* files */
    char user[ETCD_SETTING_BYTES];
    char password[ETCD_SETTING_BYTES];
    char password_file[ETCD_SETTING_BYTES]; /* whose first line is it */
    char prefix[ETCD_SETTING_BYTES];        /* of all keys, without a slash at its end */
};

#endif
