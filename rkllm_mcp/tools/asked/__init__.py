"""What servers may ask of the host: our model, the owner, folders, patience."""
