"""The stages of a search, each a function of what it is given.

routing       1. which knowledge bases                       (summary vectors)
filtering     2. which documents                             (storage.filters, inside the queries of 3)
candidates    3. by words, by vectors; 4. fused
memory        vectors in memory, as fresh as the file
lexical       5. BM25 re-rank
relevance     6. cross-encoder re-rank
calibration   a re-rank's figure -> a score that a threshold can be compared with
trace         what each stage was given and made, for explanations
pipeline      the stages in order
"""
