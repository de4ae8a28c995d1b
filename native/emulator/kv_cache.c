/* kv_cache.c: see kv_cache.h. */

#include "kv_cache.h"

/* Returns how many of the ids equal those cached, counted from the first token. */
size_t kv_match(const struct ids *cached, const int32_t *ids, size_t count) {
    size_t matched = 0;
    while (matched < count && matched < cached->len && cached->data[matched] == ids[matched]) matched++;
    return matched;
}

/* Returns how many leading ids need not be evaluated: those that match, but of a prompt that is cached whole as many
 * as full says. The usual answer is all but the last, because the first new token is sampled from its evaluation. */
size_t kv_reusable(const struct ids *cached, const int32_t *ids, size_t count, enum full_match full) {
    size_t matched = kv_match(cached, ids, count);
    if (matched < count || !count) return matched;
    return full == FULL_MATCH_ALL ? 0 : full == FULL_MATCH_NONE ? count : count - 1;
}

/* Makes room in a full cache: drops the older half of what lies after the first keep entries, at least one.
 * Returns how many were dropped; 0 when everything is kept. */
size_t kv_shift(struct kv_cache *kv, size_t keep) {
    if (keep >= kv->ids.len) return 0;
    size_t dropped = (kv->ids.len - keep) / 2;
    if (!dropped) dropped = 1;
    ids_remove(&kv->ids, keep, keep + dropped);
    return dropped;
}
