/* fuzz_meeting.c - any text as the address that node 0 publishes by PMI. What is accepted is the
 * same when it is published again. */
#include "fuzz.h"
#include "launcher/hosts/pmi_bootstrap.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pmi_bootstrap_meeting m, again;
    char told[1024];
    char *text = malloc(size + 1);
    require(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    if (pmi_bootstrap_read(text, &m, NULL) == 0) {
        require(m.port > 0 && m.n_addresses > 0 && m.n_addresses <= PMI_BOOTSTRAP_ADDRESSES_MAX);
        pmi_bootstrap_print(&m, told, sizeof told);
        require(pmi_bootstrap_read(told, &again, NULL) == 0);
        require(m.port == again.port);
        require(strcmp(m.token, again.token) == 0 && strcmp(m.run_id, again.run_id) == 0);
        require(m.n_addresses == again.n_addresses &&
                strcmp(m.address[m.n_addresses - 1], again.address[m.n_addresses - 1]) == 0);
    }
    free(text);
    return 0;
}
