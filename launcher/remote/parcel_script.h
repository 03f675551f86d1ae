/* parcel_script.h - launcher/remote/parcel/take.sh in one line, without quotes. Made by the build
 * (launcher/remote/parcel/pack.py). */
#ifndef DDP_LAUNCHER_PARCEL_SCRIPT_H
#define DDP_LAUNCHER_PARCEL_SCRIPT_H

extern const char parcel_script[];

#endif
