"""The composition root: one assistant, or one for each tenant, over the model and the tools."""
