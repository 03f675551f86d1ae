/* payload_script.h - launcher/remote/payload/receive.sh in one line, without quotes. Made by the
 * build (launcher/remote/payload/pack.py). */
#ifndef DDP_LAUNCHER_REMOTE_PAYLOAD_SCRIPT_H
#define DDP_LAUNCHER_REMOTE_PAYLOAD_SCRIPT_H

extern const char payload_script[];

#endif
