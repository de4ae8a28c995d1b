"""Which tools fit a request: search over what tools are called and said to be, in English and Japanese.

``words`` cuts text into terms, ``glossary`` knows which words mean the same, ``ranking`` weighs the terms of a request
against those of every tool, and ``search`` adds what served before and, where there is a model for it, what is near in
meaning. No model is needed, nothing is downloaded, and a hundred tools are ranked in a few milliseconds.
"""
