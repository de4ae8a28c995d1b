"""Models on disk: ``pulling`` downloads a model, ``adding`` takes a local file, ``stock`` holds their shared parts."""
