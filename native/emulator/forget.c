/* forget.c: what stays in the KV caches of a model. */

#include "model.h"

/* Returns how many leading entries of a cache stay when a run leaves nothing else. */
size_t model_system_part(const struct model *m, const struct sequence *entry) {
    size_t part = m->settings.n_keep >= 0 ? (size_t)m->settings.n_keep : entry->system_tokens;
    return m->faults.system_dropped ? 0 : part;
}

/* Empties the KV caches, or all after the system prompt, with the history and a paused run; the lock is held. */
void model_forget(struct model *m, bool keep_system) {
    for (int i = 0; i < m->batch_size; i++) {
        struct sequence *entry = &m->batch[i];
        ids_truncate(&entry->kv.ids, keep_system ? entry->system_tokens : 0);
        if (!keep_system) entry->system_tokens = 0;
        ids_truncate(&entry->transcript, 0);
        entry->history = (struct history){.pending = -1};
    }
    if (m->faults.leave_pause != PAUSE_NEVER_LEFT) m->paused = false;
}
