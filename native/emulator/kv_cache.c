/* kv_cache.c: see kv_cache.h. */

#include "kv_cache.h"

/* Returns how many of the ids equal the cache, counted from the first token. */
size_t kv_match(const struct kv_cache *kv, const int32_t *ids, size_t count) {
    size_t matched = 0;
    while (matched < count && matched < kv->ids.len && kv->ids.data[matched] == ids[matched]) matched++;
    return matched;
}

/* Returns how many leading ids need not be evaluated: those that match, but never all of them, because the
 * first new token is sampled from the evaluation of the last. */
size_t kv_reusable(const struct kv_cache *kv, const int32_t *ids, size_t count) {
    size_t matched = kv_match(kv, ids, count);
    return matched == count && count ? count - 1 : matched;
}

/* Makes room in a full cache: drops the older half of what lies behind the first keep entries, at least one.
 * Returns how many were dropped; 0 when everything is kept. */
size_t kv_shift(struct kv_cache *kv, size_t keep) {
    if (keep >= kv->ids.len) return 0;
    size_t dropped = (kv->ids.len - keep) / 2;
    if (!dropped) dropped = 1;
    ids_remove(&kv->ids, keep, keep + dropped);
    return dropped;
}
