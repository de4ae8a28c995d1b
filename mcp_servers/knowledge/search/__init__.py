"""The stages of a search.

pipeline      the stages in order; 1. choice of knowledge bases
(storage)     2. metadata filter, inside the queries of 3
ranking       3. candidates and fusion; 4. BM25 re-rank and order
probability   5. score
vector_index  exact nearest neighbours in memory
"""
