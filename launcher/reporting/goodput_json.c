#include "goodput_json.h"

#include "launcher/platform/json_value.h"
#include "launcher/supervisor/goodput.h"

static json_t *seconds(const struct goodput_sums *s, enum goodput_state cause)
{
    return json_value_real((double)s->sum_ms[cause] / 1000);
}

json_t *goodput_json_make(const struct goodput_sums *s)
{
    if (s == NULL)
        return json_null();
    json_t *sums = json_pack(
        "{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "start", seconds(s, GOODPUT_START), "rendezvous",
        seconds(s, GOODPUT_RENDEZVOUS), "waiting_for_nodes", seconds(s, GOODPUT_NODES),
        "productive", seconds(s, GOODPUT_PRODUCTIVE), "checkpoint", seconds(s, GOODPUT_CHECKPOINT),
        "hang", seconds(s, GOODPUT_HANG), "restart", seconds(s, GOODPUT_RESTART), "recovery",
        seconds(s, GOODPUT_RECOVERY), "shutdown", seconds(s, GOODPUT_SHUTDOWN));
    return json_pack("{s:o,s:s,s:b,s:o,s:o}", "ratio", json_value_real(goodput_ratio(s)), "now",
                     goodput_name(s->now), "by_steps", s->is_counted, "total_s",
                     json_value_real((double)s->total_ms / 1000), "seconds", sums);
}
