#include "protocol.h"

enum protocol protocol_of(const uint8_t *bytes, size_t len)
{
    static const char preface[] = PROTOCOL_CONTROL_PREFACE;
    if (len == 0)
        return PROTOCOL_UNDECIDED;
    if (bytes[0] < 'A' || bytes[0] > 'Z')
        return PROTOCOL_STORE;
    for (size_t i = 0; i < sizeof preface - 1; i++) {
        if (i == len)
            return PROTOCOL_UNDECIDED;
        if (bytes[i] != (uint8_t)preface[i]) /* DELETE begins as the preface does */
            return PROTOCOL_HTTP;
    }
    return PROTOCOL_CONTROL;
}
