/* kv_cache.h: the token ids whose keys and values the model would hold. */

#ifndef EMULATOR_KV_CACHE_H
#define EMULATOR_KV_CACHE_H

#include "buffers.h"
#include "faults.h"

struct kv_cache {
    struct ids ids;
    size_t capacity; /* max_context_len */
};

size_t kv_match(const struct ids *cached, const int32_t *ids, size_t count);
size_t kv_reusable(const struct ids *cached, const int32_t *ids, size_t count, enum full_match full);
size_t kv_shift(struct kv_cache *kv, size_t keep);

#endif
