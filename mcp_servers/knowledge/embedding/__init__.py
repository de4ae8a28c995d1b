"""Models as ports: texts become vectors, pairs of question and passage become relevance.

ports       what the search asks of an embedder and of a reranker
hashing     an embedder without a model: words and pieces of words hashed into 1024 numbers
service     an embedder and a reranker behind an OpenAI-style address
model_folder  a folder with a model in ONNX, and what its files say about it
cpu         an embedder and a reranker that run such a model on this machine's processor
choice      what the owner wrote becomes an embedder and a reranker
filling     vectors that are missing are made in the background
"""
