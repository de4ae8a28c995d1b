/* relevance.h: how much a document says about a query, for scripts that play a reranker. */

#ifndef EMULATOR_RELEVANCE_H
#define EMULATOR_RELEVANCE_H

#include <stddef.h>

double relevance(const char *query, size_t query_len, const char *document, size_t document_len);

#endif
