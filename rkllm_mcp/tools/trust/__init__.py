"""What stands between a model and a tool: questions to the owner, a record of every call, text that is not believed."""
